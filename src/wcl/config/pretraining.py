"""The settings of a pretraining run.

A recipe is a YAML file with some of these settings; whatever it leaves out has the default here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings in groups by their dotted names.

    >>> flat({"epochs": 3, "optim": {"lr": 0.1}})
    {'epochs': 3, 'optim.lr': 0.1}
    """
    by_name: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        by_name |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return by_name


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their dotted names as groups: the inverse of `flat`.

    >>> nested({"epochs": 3, "optim.lr": 0.1})
    {'epochs': 3, 'optim': {'lr': 0.1}}
    """
    groups: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, setting = name.rpartition(".")
        inner = groups.setdefault(group, {}) if dot else groups
        inner[setting] = value
    return groups


@dataclass
class ModelConfig:
    """The network."""

    backbone: str = "resnet18"
    """A timm model by its name; or resnet_small (1.2 M parameters), or conv_tiny (0.1 M)."""
    stem: Literal["native", "cifar", "stride2"] = "native"
    """First layers of a ResNet: its own, 3×3 stride 1 without pooling, or 3×3 stride 2 without."""
    head_layers: int = 2
    """Layers of each projection head, 2 or 3."""
    head_hidden_dim: int = 2048
    """Hidden units of each projection head."""
    head_out_dim: int = 128
    """Dimensions of the embeddings that the losses see."""


@dataclass
class AugmentConfig:
    """What the augmentations may do. The defaults are MoCo v2's; 0 switches a thing off."""

    scale: tuple[float, float] = (0.2, 1.0)
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
    """Hue turns by ± this share of the color wheel."""
    grayscale: float = 0.2
    """Probability of turning gray."""
    blur: float = 0.5
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's width in pixels."""
    solarize: float = 0.0
    """Probability of inverting the pixels above one half (BYOL)."""
    rotate: float = 0.0
    """Rotation by ± this many degrees."""
    shear: float = 0.0
    """Horizontal shear by ± this many degrees."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Range of the factor of size about the center."""
    shift: float = 0.0
    """Shift by ± this share of the image's side."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise, on a scale of 0 to 1."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Mean of each channel, subtracted at the end."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, divided by at the end."""


@dataclass
class CropsConfig:
    """Small crops beside the two views of each image, of its nearest neighbors if wanted."""

    count: int = 0
    """K, small crops of each image in a step; 0 for none."""
    size: int = 0
    """Height and width of a small crop in pixels; 0 for half those of a view."""
    scale: tuple[float, float] = (0.05, 0.14)
    """Range of a small crop's share of its image's area."""
    neighbors: bool = True
    """Whether the k-th crop is cut from the image's k-th nearest neighbor once `warmup` is over;
    if not, all crops are always cut from the image itself."""
    warmup: float = 0.25
    """Epochs of crops from the image itself before that; below 1 it is a share of the run."""
    search: Literal["auto", "exact", "approximate"] = "auto"
    """How neighbors are found; auto is exact up to 100,000 images (on a GPU, 2,000,000)."""
    bank: Literal["memory", "disk"] = "memory"
    """Where the features of all images are kept: in memory, or in a file on the run's disk."""
    cache: int = 1024
    """Megabytes that the decoding processes together may use to keep neighbors' photos."""


@dataclass
class OptimConfig:
    """The optimizer and its schedule: linear warm-up, then cosine to zero, step by step."""

    name: Literal["lars", "sgd", "adamw"] = "lars"
    """Optimizer."""
    lr: float = 0.25
    """Base learning rate, before `lr_scaling`."""
    lr_scaling: Literal["linear", "sqrt", "constant"] = "linear"
    """The peak rate is rate·batch/256 (linear), rate·√batch (sqrt) or rate itself (constant)."""
    momentum: float = 0.9
    """Momentum of LARS and SGD."""
    weight_decay: float = 1e-6
    """Weight decay; never on biases and norms."""
    warmup_epochs: float = 10
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
    method: str = "wcl"
    """What the encoder learns from: a method by its name, such as wcl or simclr, or one of your own
    as package.module:Class."""
    epochs: int = 100
    """Passes over the data."""
    batch_size: int = 256
    """Images per step, over all processes."""
    micro_batch_size: int = 0
    """Images, over all processes, that pass through the network at a time: for batches larger than
    memory. The gradient is that of the whole batch; batch norms see one such piece. 0 for all."""
    image_size: int = 224
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
    mild_augment_epochs: int = 0
    """Epochs of MoCo v2's milder augmentation before `augment` takes over."""
    loss: Any = None
    """Settings of the method, a value of its dataclass; None for its defaults."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    log: LogConfig = field(default_factory=LogConfig)
    max_unreadable_fraction: float = 0.5
    """Share of the images that may turn out to be unreadable before the run ends with an error.
    Those that are so are left out and listed in RUN/skipped.txt."""
    save_every: int = 1
    """Epochs between two checkpoints."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    devices: int = 1
    """Processes to start on this machine, each with a GPU of its own or a share of the cores. Under
    torchrun or SLURM, which start them, it means nothing."""
    timeout_minutes: float = 30
    """Minutes after which a process that waits for another gives up."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """Numbers the network computes in; the losses are always computed in full precision."""
    compile: bool = False
    """Compile the network with torch.compile."""
    threads: int = 0
    """CPU threads of each training process; 0 leaves it to torch, or to several processes an equal
    share of the cores. On a busy machine 1 is faster."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand. Of several training processes
    each has so many."""

    def defaults(self) -> "PretrainConfig":
        """Return the default settings, with those of this run's method."""
        return PretrainConfig(loss=type(self.loss)())

    @property
    def crop_size(self) -> int:
        """Height and width of a small crop in pixels."""
        return self.crops.size or max(1, self.image_size // 2)
