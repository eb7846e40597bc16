"""The options of the evaluations."""

from dataclasses import dataclass
from typing import Literal


@dataclass
class EvalConfig:
    """What every evaluation needs."""

    data: str = ""
    """Labeled images, as for `wcl pretrain`; a test split is used if they have one, else a fifth
    of them is held out."""
    test_data: str = ""
    """Test images, if they lie elsewhere."""
    classes: int = 0
    """Use only the first so many classes in the order of their names; 0 for all."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class ClassifyConfig(EvalConfig):
    """What every evaluation by classifying needs."""

    per_class: bool = False
    """Whether to print the accuracy of every class."""
    confusion: str = ""
    """File for the confusion matrix: .csv, or a plot as .png, .pdf or .svg; none by default."""


@dataclass
class KnnConfig(ClassifyConfig):
    """Weighted k-nearest-neighbor classification."""

    k: int | list[int] | str = 0
    """Neighbors that vote; 0 for 200, or for as many as the smallest class has images. Of several,
    as 10,20,200, the first is the result and all are printed."""
    temperature: float | list[float] | str = 0.1
    """Temperature: a neighbor's vote weighs exp(cosine / tau). Several as for k."""


@dataclass
class LinearConfig(ClassifyConfig):
    """A linear classifier on the frozen encoder."""

    mode: Literal["fast", "paper"] = "fast"
    """paper: fresh random crops and flips in every epoch; fast: in four epochs, whose features are
    kept and repeated in the others."""
    epochs: int = 80
    """Passes over the training images."""
    batch_size: int = 256
    """Images per step."""
    lr: float | list[float] | str = 0.1
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
    """Plot to write: .png, .pdf or .svg; the numbers go into a CSV file beside it."""
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
    """Passes over the labeled images; 0 for 60 if about 1% of the images or less are labeled, and
    for 30 if more, or as many as make 100 steps."""
    batch_size: int = 256
    """Images per step, at most."""
    encoder_lr: float = 0.05
    """Learning rate of the encoder at batch 256; it grows with the batch."""
    lr: float = 0.5
    """The same of the classifier."""
    scratch: bool = True
    """Whether to train the same network from scratch, too."""
    scratch_lr: float = 0.3
    """Learning rate of that, encoder and classifier, at batch 256."""
    seed: int = 0
    """Of the draw of labeled images, their order and crops, and all that starts at random."""


@dataclass
class LowshotConfig(EvalConfig):
    """Linear SVMs on a few labeled images of each class, and on all."""

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
