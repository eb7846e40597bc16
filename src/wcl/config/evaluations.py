"""The settings of the evaluation protocols."""

from dataclasses import dataclass
from typing import Annotated, Literal

from wcl.config.bounds import (
    Bounds,
    Count,
    OptionalAreaRange,
    PositiveCount,
    Probability,
    Seed,
    Threads,
    Workers,
    above,
    at_least,
    between,
)

LEARNING_RATES = Bounds(0, 1e35, is_open=True)  # float32 ends at 3e38
COSTS = Bounds(0, 1e6, is_open=True)  # beyond it, an SVM takes hours and cannot be interrupted


@dataclass
class EvalConfig:
    """Settings of every protocol."""

    data: str = ""
    """Labeled images, as for `wcl pretrain`; by default those that the run was trained on. Their
    test split is used if they have one; otherwise a fifth of the images is held out."""
    test_data: str = ""
    """Test images, if they are stored elsewhere."""
    classes: Count = 0
    """Use only this many classes, the first by name; 0 for all."""
    image_size: Annotated[int, between(0, 4096)] = 0
    """Height and width of the images in pixels; 0 for those of pretraining."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: Workers = -1
    """Processes that decode photos; -1 chooses by the number of cores."""


@dataclass
class ClassifyConfig(EvalConfig):
    """Settings of every protocol that classifies images."""

    per_class: bool = False
    """Print the accuracy of every class."""
    confusion: str = ""
    """File for the confusion matrix: .csv, or a plot as .png, .pdf or .svg; none by default."""


@dataclass
class KnnConfig(ClassifyConfig):
    """Weighted k-nearest-neighbor classification."""

    k: int | list[int] | str = 0
    """Neighbors that vote; 0 for 200, or for the size of the smallest class if that is less. Of
    several values, such as 10,20,200, all are printed and the first is the result."""
    temperature: float | list[float] | str = 0.1
    """Temperature τ: a neighbor's vote weighs exp(cosine / τ). Several values as for k."""


@dataclass
class LinearConfig(ClassifyConfig):
    """Linear classification on frozen features."""

    mode: Literal["fast", "paper"] = "fast"
    """paper draws new random crops and flips in every epoch; fast draws them for four epochs, and
    reuses their features in the others."""
    epochs: PositiveCount = 80
    """Passes over the training images."""
    batch_size: PositiveCount = 256
    """Images per step."""
    lr: float | list[float] | str = 0.1
    """Learning rate at batch size 256, scaled linearly with the batch. Several values, such as
    0.1,0.3,1, are trained side by side; all are printed and the first is the result."""
    nesterov: bool = False
    """Nesterov momentum, which the authors of SimCLR and of WCL use on ImageNet."""
    scale: OptionalAreaRange = None
    """Range of the area of the training crops as a fraction of the image's, such as [0.08, 1]; by
    default that of pretraining."""
    seed: Seed = 0
    """Seed of the order of the images, the crops and the initial classifier."""


@dataclass
class ProjectConfig(EvalConfig):
    """Map of test images by t-SNE, with measures of how compact and how separate classes are."""

    against: str = ""
    """Another run, or timm:NAME, drawn beside the first with the same images."""
    groups: Annotated[int, at_least(2)] = 10
    """Number of classes, chosen at random."""
    per_group: Annotated[int, at_least(2)] = 100
    """Maximum number of images of each class."""
    out: str = "project.png"
    """Plot to write: .png, .pdf or .svg; the numbers go into a CSV file beside it."""
    seed: Seed = 0
    """Seed of the choice of classes and images, and of t-SNE."""


@dataclass
class FinetuneConfig(EvalConfig):
    """Fine-tuning of the whole network on few labels, compared with training from scratch."""

    labels: str = ""
    """Which training images keep their labels: a percentage of every class (10%), a number per
    class (3-per-class), or a text file with one image name per line."""
    start: Literal["pool", "projection"] = "pool"
    """Where the classifier is attached: to the pooled features, or behind the first layer of the
    projection head g. `--from` means the same."""
    epochs: Count = 0
    """Passes over the labeled images; 0 for 60 if at most about 1% of the images are labeled and
    for 30 otherwise, or for as many as make 100 steps."""
    batch_size: Annotated[int, at_least(2)] = 256
    """Maximum number of images per step."""
    encoder_lr: Annotated[float, LEARNING_RATES] = 0.05
    """Learning rate of the encoder at batch size 256, scaled linearly with the batch."""
    lr: Annotated[float, LEARNING_RATES] = 0.5
    """Learning rate of the classifier, likewise."""
    scale: OptionalAreaRange = None
    """Range of the area of the training crops as a fraction of the image's, such as [0.08, 1]; by
    default that of pretraining."""
    scratch: bool = True
    """Also train the same network from scratch."""
    scratch_lr: Annotated[float, LEARNING_RATES] = 0.3
    """Learning rate of a network trained from scratch, likewise."""
    distill: bool = False
    """Also train the same network from scratch on all training images, with the predictions of the
    fine-tuned one in place of labels, as SimCLR v2 does; its accuracy becomes the result."""
    distill_epochs: PositiveCount = 100
    """Passes over the training images for --distill; the paper of SimCLR v2 has 400."""
    distill_temperature: Annotated[float, above(0)] = 1.0
    """Temperature τ of the predictions of both networks."""
    distill_label_weight: Probability = 0.0
    """Weight 1 − α of the labels; the predictions of the fine-tuned network have a weight of α."""
    seed: Seed = 0
    """Seed of the choice of labeled images, their order and crops, and of initial weights."""


@dataclass
class LowshotConfig(EvalConfig):
    """Linear SVMs on a few labeled images of each class, and on all."""

    k: str = ""
    """Examples per class, such as 1,4,16; by default those of 1,2,4,8,16,32,64 that every class
    has. All images always come last."""
    draws: PositiveCount = 5
    """Number of random draws of examples; their mean and standard deviation are printed."""
    seed: Seed = 0
    """Seed of the draws; each draw depends on it, on k and on its own number only."""
    scheme: Literal["union", "per-class"] = "union"
    """union: k positives of every class, and all of them train the SVM of each class; per-class: k
    positives and (classes − 1)·k negatives drawn for the SVM of each class."""
    cost: Annotated[float, COSTS] = 1.0
    """Cost C of the SVMs."""
    costs: str = ""
    """Other costs to try, such as 0.1,10,100; the best one on the test images is printed beside the
    result as best_on_test."""


@dataclass
class UnlabeledConfig(EvalConfig):
    """Figures that need no labels, beside those of networks without training, and a verdict."""

    data: str = ""
    """Images, with or without labels; by default those that the run was trained on. Their test
    split is used if they have one."""
    images: Annotated[int, at_least(2)] = 1000
    """Maximum number of images, chosen at random. The verdict was calibrated with 1,000."""
    seed: Seed = 0
    """Seed of the choice of images, and of their augmented views."""


@dataclass
class AllConfig(EvalConfig):
    """All evaluations that the data allow, compared with the untrained network. The table is also
    written to RUN/evaluation.json and RUN/evaluation.md."""

    labels: str = "10%"
    """Which training images keep their labels for fine-tuning; see `wcl eval finetune --help`."""


PROTOCOLS: dict[str, type[EvalConfig]] = {
    "knn": KnnConfig,
    "linear": LinearConfig,
    "finetune": FinetuneConfig,
    "project": ProjectConfig,
    "lowshot": LowshotConfig,
    "unlabeled": UnlabeledConfig,
}
"""Settings of each protocol. Its module in `wcl.evaluation`, and the function in it, have the same
name."""
