"""Typed settings: one definition feeds the command line, YAML, Python and the help text.

A recipe is a YAML file with some of these settings; whatever it leaves out has the default here.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flat({"epochs": 3, "optim": {"rate": 0.1}})
    {'epochs': 3, 'optim.rate': 0.1}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


@dataclass
class ModelConfig:
    """The network."""

    backbone: str = "resnet18"
    """A timm model by its name; or resnet_small (1.2 M parameters), or conv_tiny (0.1 M)."""
    stem: Literal["native", "cifar", "stride2"] = "native"
    """First layers of a ResNet: its own, 3×3 stride 1 without pooling, or 3×3 stride 2 without."""
    head_layers: int = 2
    """Layers of each projection head, 2 or 3."""
    head_width: int = 2048
    """Hidden units of each projection head."""
    head_out: int = 128
    """Dimensions of the embeddings that the losses see."""


@dataclass
class AugmentConfig:
    """What the augmentations may do. The defaults are MoCo v2's; 0 switches a thing off."""

    area: tuple[float, float] = (0.2, 1.0)
    """Range of the crop's share of the image's area; [1, 1] keeps the whole of a square image."""
    ratio: tuple[float, float] = (0.75, 4 / 3)
    """Range of the crop's width over height."""
    flip: float = 0.5
    """Probability of a left-right flip."""
    jitter: float = 0.8
    """Probability that brightness, contrast, saturation and hue change, in random order."""
    brightness: float = 0.4
    """Brightness is multiplied by 1 ± this."""
    contrast: float = 0.4
    """Contrast is multiplied by 1 ± this."""
    saturation: float = 0.4
    """Saturation is multiplied by 1 ± this."""
    hue: float = 0.1
    """Hue turns by ± this share of the colour wheel."""
    grey: float = 0.2
    """Probability of turning grey."""
    blur: float = 0.5
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's width in pixels."""
    rotate: float = 0.0
    """Rotation by ± this many degrees."""
    shear: float = 0.0
    """Horizontal shear by ± this many degrees."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Range of the factor of size about the centre."""
    shift: float = 0.0
    """Shift by ± this share of the image's side."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise, on a scale of 0 to 1."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Mean of each channel, subtracted at the end."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, divided by at the end."""


@dataclass
class LossConfig:
    """The losses. The weights switch them on and off: the paper's ablations are settings here."""

    tau: float = 0.1
    """Temperature of every loss."""
    nce: float = 1.0
    """Weight of instance discrimination, L_NCE; 0 leaves the first head out."""
    swap: float = 0.5
    """β, the weight of the swapped supervised contrastive loss, L_swap (method wcl)."""
    cnce: float = 1.0
    """λ, the weight of instance discrimination of the small crops, L_cNCE."""
    cswap: float = 0.5
    """γ, the weight of the swapped loss of the small crops, L_cswap (method wcl)."""
    heads: Literal["two", "shared"] = "two"
    """Whether the swapped losses have a projection head of their own, as in the paper, or share the
    first."""
    positives: Literal["mean", "sum"] = "mean"
    """How an anchor's positives are combined: the authors' code averages, their Eq. 4 sums."""
    key_gradient: bool = True
    """Whether the swapped losses send gradient through their keys; the authors' code does not."""


@dataclass
class CropsConfig:
    """Small crops beside the two views of each image, of its nearest neighbours if wanted."""

    count: int = 0
    """K, small crops of each image in a step; 0 for none."""
    size: int = 96
    """Height and width of a small crop in pixels."""
    area: tuple[float, float] = (0.05, 0.14)
    """Range of a small crop's share of its image's area."""
    neighbours: bool = True
    """Whether the k-th crop is cut from the image's k-th nearest neighbour once `warmup` is over;
    if not, all crops are always cut from the image itself."""
    warmup: float = 0.25
    """Epochs of crops from the image itself before that; below 1 it is a share of the run."""
    search: Literal["auto", "exact", "approximate"] = "auto"
    """How neighbours are found; auto is exact up to 100,000 images (on a GPU, 2,000,000)."""
    bank: Literal["memory", "disk"] = "memory"
    """Where the features of all images are kept: in memory, or in a file on the run's disk."""
    cache: int = 1024
    """Megabytes that the decoding processes together may use to keep neighbours' photos."""


@dataclass
class OptimConfig:
    """The optimiser and its schedule: linear warm-up, then cosine to zero, step by step."""

    name: Literal["lars", "sgd", "adamw"] = "lars"
    """Optimiser."""
    rate: float = 0.25
    """Base learning rate, before `rule`."""
    rule: Literal["linear", "sqrt", "constant"] = "linear"
    """The peak rate is rate·batch/256 (linear), rate·√batch (sqrt) or rate itself (constant)."""
    momentum: float = 0.9
    """Momentum of LARS and SGD."""
    weight_decay: float = 1e-6
    """Weight decay; never on biases and norms."""
    warmup: float = 10
    """Epochs of linear warm-up, at most half the run."""


@dataclass
class LogConfig:
    """What is measured and written while training."""

    every: int = 10
    """Steps between two lines of metrics.jsonl."""
    health: int = 1024
    """Images whose embeddings are examined at the end of each epoch; 0 skips it."""
    knn_every: int = 0
    """Epochs between k-NN evaluations, for data with labels; 0 for never."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: bool = False
    """Send metrics to Weights & Biases, which must be installed."""


@dataclass
class PretrainConfig:
    """Pretrain an encoder on images without labels."""

    data: str = ""
    """Images: digits, cifar10, cifar100, a folder, a parquet file or folder, or hf:NAME."""
    out: str = ""
    """Folder that the run is written to."""
    method: Literal["wcl", "simclr"] = "wcl"
    """Weakly supervised contrastive learning, or plain instance discrimination."""
    epochs: int = 100
    """Passes over the data."""
    batch: int = 256
    """Images per step."""
    size: int = 224
    """Height and width of a view in pixels."""
    limit: int = 0
    """Use only this many images, drawn once from the seed; 0 for all."""
    classes: int = 0
    """Use only the images of the first so many classes in the order of their names; 0 for all."""
    seed: int = 0
    """Every random choice is a function of this number."""
    model: ModelConfig = field(default_factory=ModelConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    crops: CropsConfig = field(default_factory=CropsConfig)
    early_epochs: int = 0
    """Epochs of MoCo v2's milder augmentation before `augment` takes over."""
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    log: LogConfig = field(default_factory=LogConfig)
    save_every: int = 1
    """Epochs between two checkpoints."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """Numbers the network computes in; the losses are always computed in full precision."""
    compile: bool = False
    """Compile the network with torch.compile."""
    threads: int = 0
    """CPU threads of the training process; 0 leaves it to torch. On a busy machine 1 is faster."""
    workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class EvalConfig:
    """What every evaluation needs."""

    data: str = ""
    """Labelled images, as for `wcl pretrain`; a test split is used if they have one, else a fifth
    of them is held out."""
    test_data: str = ""
    """Test images, if they lie elsewhere."""
    classes: int = 0
    """Use only the first so many classes in the order of their names; 0 for all."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class ClassifyConfig(EvalConfig):
    """What every evaluation by classifying needs."""

    per_class: bool = False
    """Whether to print the accuracy of every class."""
    confusion: str = ""
    """CSV file for the table of true against predicted classes; none by default."""


@dataclass
class KnnConfig(ClassifyConfig):
    """Weighted k-nearest-neighbour classification."""

    k: int | list[int] | str = 0
    """Neighbours that vote; 0 for 200, or for as many as the smallest class has images. Of several,
    as 10,20,200, the first is the result and all are printed."""
    tau: float | list[float] | str = 0.1
    """Temperature: a neighbour's vote weighs exp(cosine / tau). Several as for k."""


@dataclass
class LinearConfig(ClassifyConfig):
    """A linear classifier on the frozen encoder."""

    mode: Literal["fast", "paper"] = "fast"
    """fast: features computed once; paper: fresh random crops and flips in every epoch."""
    epochs: int = 80
    """Passes over the training images."""
    batch: int = 256
    """Images per step."""
    rate: float | list[float] | str = 0.1
    """Learning rate at batch 256; it grows with the batch. Of several, as 0.1,0.3,1, which are
    trained side by side, the first is the result and all are printed."""
    seed: int = 0
    """Of the order of the images, the crops and the classifier's start."""


@dataclass
class ProjectConfig(EvalConfig):
    """A map of the test images' features by t-SNE, and how tight and how far apart classes are."""

    against: str = ""
    """Another run, drawn beside the first with the same images."""
    groups: int = 10
    """How many classes, chosen at random."""
    per_group: int = 100
    """At most so many images of each."""
    out: str = "project.png"
    """PNG file to write; the numbers go into a CSV file beside it."""
    seed: int = 0
    """Of the choice of classes and images, and of the map."""


@dataclass
class FinetuneConfig(EvalConfig):
    """All of the network trained on few labels, and beside it the same network from scratch."""

    labels: str = ""
    """Which training images have labels: a percentage of every class (10%), so many of each
    (3-per-class), or a text file of image names, one per line."""
    start: Literal["pool", "projection"] = "pool"
    """Where the classifier starts: the pooled features, or the first layer of the head g behind
    them. `--from` is the same."""
    epochs: int = 0
    """Passes over the labelled images; 0 for 60 if about 1% of the images or less are labelled, and
    for 30 if more."""
    batch: int = 256
    """Images per step, at most."""
    encoder_rate: float = 0.05
    """Learning rate of the encoder at batch 256; it grows with the batch."""
    rate: float = 0.5
    """The same of the classifier."""
    scratch: bool = True
    """Whether to train the same network from scratch, too."""
    scratch_rate: float = 0.3
    """Learning rate of that, encoder and classifier, at batch 256."""
    seed: int = 0
    """Of the draw of labelled images, their order and crops, and all that starts at random."""


@dataclass
class LowshotConfig(EvalConfig):
    """Linear SVMs on a few labelled images of each class, and on all."""

    k: str = ""
    """Examples per class, such as 1,4,16; by default 1,2,4,8,16,32,64 as far as every class has so
    many. All images come after them in any case."""
    draws: int = 5
    """How often the examples are drawn; the mean and the standard deviation are printed."""
    seed: int = 0
    """Of the draws: each depends on this, k and its number alone."""
    scheme: Literal["union", "per-class"] = "union"
    """union: k positives of every class, all drawn images train the SVMs of all classes; per-class:
    k positives and (classes − 1)·k negatives for the SVM of each class alone."""
    cost: float = 1.0
    """C of the SVMs: what errors weigh."""
    costs: str = ""
    """Other costs to try, such as 0.1,10,100; the best on the test images is printed beside the
    result as best_on_test."""


@dataclass
class AllConfig(EvalConfig):
    """Every evaluation that the data allow, beside the untrained network, in one table. It is also
    written to RUN/evaluation.json and RUN/evaluation.md."""

    labels: str = "10%"
    """Which training images fine-tuning has labels of; see `wcl eval finetune --help`."""


PROTOCOLS: dict[str, type[EvalConfig]] = {
    "knn": KnnConfig,
    "linear": LinearConfig,
    "finetune": FinetuneConfig,
    "project": ProjectConfig,
    "lowshot": LowshotConfig,
}
"""The options of each `wcl eval PROTOCOL`, whose module and function in `wcl.evaluation` are called
like it."""


@dataclass
class DataConfig:
    """Look at a data set: how many images, their sizes and classes, and which cannot be read."""

    most: int = 20
    """How many unreadable images to name."""


@dataclass
class ViewsConfig(PretrainConfig):
    """Write a picture of what the augmentations of a run would do to images."""

    out: str = "views.png"
    """PNG file to write."""
    images: int = 8
    """Rows: how many images."""
    views: int = 8
    """Columns: how many views of each."""


@dataclass
class EmbedConfig:
    """Write path, label and vector of every image to a file. A command that was stopped goes on
    where it was when it is started again."""

    data: str = ""
    """Images, as for `wcl pretrain`."""
    out: str = ""
    """File to write: .parquet, .csv, or .npy with the paths in a .paths.csv beside it."""
    split: Literal["train", "test", "all"] = "train"
    """Which images, of data that have a training and a test split; of others train is all."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class RetrievalConfig:
    """What every comparison of images needs."""

    data: str = ""
    """Images, as for `wcl pretrain`; of data with splits, the training split."""
    out: str = ""
    """PNG file to write; its default is a new file in the current folder, or none with --json."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class NeighboursConfig(RetrievalConfig):
    """Find the images most like a given one: a table, and a picture (neighbours.png)."""

    query: list[str] = field(default_factory=list)
    """Image file to compare with; several with commas between, or with --query again."""
    k: int = 12
    """How many neighbours of each; also written -k."""


@dataclass
class DuplicatesConfig(RetrievalConfig):
    """Find groups of images that are nearly the same: a table, and a picture of the largest
    (duplicates.png). Nothing is deleted or moved."""

    threshold: float = 0.97
    """Cosine from which on two images count as the same. How alike different images are depends on
    the encoder: raise it if groups hold different images, lower it if copies are missed."""


@dataclass
class ExportConfig:
    """Write a run's encoder in a format for other programs, or for other people."""

    to: Literal["timm", "safetensors", "torchscript", "onnx", "hub-folder"]
    """timm: the backbone's weights alone, under timm's names; safetensors: the whole encoder, which
    describes itself; torchscript and onnx: a file that runs without this package, on float images
    between 0 and 1, which it normalises itself; hub-folder: for the Hugging Face hub."""
    out: str = ""
    """File or folder to write; a new one in RUN/export by default."""


@dataclass
class DemoConfig:
    """Pretrain SimCLR and WCL on handwritten digits and compare what a few labels then buy."""

    out: str = "runs/demo"
    """Folder for the two runs; a demo that was stopped goes on there."""
    epochs: int = 100
    """Passes over the 1,297 training images."""
    seed: int = 0
    """Of everything random."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class BenchConfig:
    """Measure speed, as ratios of things timed side by side in one run."""

    rounds: int = 0
    """How often each thing is timed; 0 for as often as is usual."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch."""
