"""The settings of a pretraining run.

A recipe is a YAML file with some of these settings; the others keep their defaults.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from wcl.config.bounds import (
    Amount,
    AreaRange,
    Count,
    Devices,
    PositiveCount,
    PositiveRange,
    Probability,
    Seed,
    Threads,
    Workers,
    above,
    between,
)


@dataclass
class ModelConfig:
    """The network."""

    backbone: str = "resnet18"
    """Name of a timm model, or resnet_small (1.2 M parameters), or conv_tiny (0.1 M)."""
    stem: Literal["native", "cifar", "stride2"] = "native"
    """First layers of a ResNet: native keeps its own, cifar is a 3×3 convolution of stride 1
    without pooling, stride2 the same with stride 2."""
    weights: str = ""
    """Weights of the backbone to start from: timm (those that timm has for its name, downloaded on
    first use), a .safetensors or .pth file, a run, an export or a hub folder; empty for random
    ones. The image size, mean and std follow the weights unless they are set too."""
    weights_partial: bool = False
    """Load the weights that fit, even if others are missing, extra or of another shape."""
    weights_sha256: str = ""
    """SHA-256 that the weights must have; a run records it. Of a file, or of the tensors if timm
    downloaded them."""
    freeze_batch_norm: bool = False
    """Keep the statistics of the backbone's batch norm, which would drift to those of augmented
    images; for a start from weights."""
    head_layers: Annotated[int, between(2, 3)] = 2
    """Layers of each projection head, 2 or 3."""
    head_hidden_dim: Annotated[int, between(1, 2**20)] = 2048
    """Hidden units of each projection head."""
    head_out_dim: Annotated[int, between(1, 2**20)] = 128
    """Dimensions of the embeddings that the losses compare."""


@dataclass
class AugmentConfig:
    """Augmentations, with the defaults of MoCo v2. 0 switches one off."""

    scale: AreaRange = (0.2, 1.0)
    """Range of the crop's area as a fraction of the image's; [1, 1] keeps all of a square image."""
    ratio: PositiveRange = (0.75, 4 / 3)
    """Range of the crop's aspect ratio, width over height."""
    flip: Probability = 0.5
    """Probability of a horizontal flip."""
    jitter: Probability = 0.8
    """Probability of changing brightness, contrast, saturation and hue, in random order."""
    brightness: Amount = 0.4
    """Brightness is multiplied by 1 ± this."""
    contrast: Amount = 0.4
    """Contrast is multiplied by 1 ± this."""
    saturation: Amount = 0.4
    """Saturation is multiplied by 1 ± this."""
    hue: Annotated[float, between(0, 0.5)] = 0.1
    """Hue is rotated by ± this fraction of the color wheel."""
    grayscale: Probability = 0.2
    """Probability of converting to grayscale."""
    blur: Probability = 0.5
    """Probability of a Gaussian blur."""
    blur_sigma: PositiveRange = (0.1, 2.0)
    """Range of the blur's standard deviation in pixels."""
    solarize: Probability = 0.0
    """Probability of inverting the pixels above one half (BYOL)."""
    rotate: Amount = 0.0
    """Rotation by ± this many degrees."""
    shear: Amount = 0.0
    """Horizontal shear by ± this many degrees."""
    zoom: PositiveRange = (1.0, 1.0)
    """Range of the scaling factor about the center."""
    shift: Amount = 0.0
    """Shift by ± this fraction of the image's side."""
    noise: Amount = 0.0
    """Standard deviation of Gaussian noise; pixels are between 0 and 1."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Mean of each channel, subtracted last."""
    std: Annotated[tuple[float, ...], above(0)] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, divided by last."""


@dataclass
class CropsConfig:
    """Small crops beside the two views of each image, which can come from its nearest neighbors."""

    count: Count = 0
    """K, the small crops per image in a step; 0 for none."""
    size: Count = 0
    """Height and width of a small crop in pixels; 0 for half those of a view."""
    scale: AreaRange = (0.05, 0.14)
    """Range of a small crop's area as a fraction of the image's."""
    neighbors: bool = True
    """Whether the k-th crop comes from the k-th nearest neighbor of the image after `warmup`; if
    not, all crops come from the image itself."""
    warmup: Amount = 0.25
    """Epochs before crops come from neighbors; below 1, a fraction of the run."""
    features: Literal["views", "plain"] = "views"
    """Features in which neighbors are found: those of an augmented view, at no cost, or those of
    the plain images, which are computed after every epoch from the warm-up on."""
    search: Literal["auto", "exact", "approximate"] = "auto"
    """Neighbor search; auto is exact up to 100,000 images (2,000,000 on a GPU)."""
    bank: Literal["memory", "disk"] = "memory"
    """Where the features of all images are stored: in memory, or in a file of the run."""
    cache: Count = 1024
    """Megabytes in which all decoding processes together cache the photos of neighbors."""


@dataclass
class OptimConfig:
    """Optimizer and schedule: linear warm-up, then cosine decay to zero, updated every step."""

    name: Literal["lars", "sgd", "adamw"] = "lars"
    """Optimizer."""
    lr: Amount = 0.25
    """Base learning rate, before `lr_scaling`."""
    lr_scaling: Literal["linear", "sqrt", "constant"] = "linear"
    """Peak learning rate: lr·batch_size/256 (linear), lr·√batch_size (sqrt) or lr (constant)."""
    momentum: Amount = 0.9
    """Momentum of LARS and SGD."""
    weight_decay: Amount = 1e-6
    """Weight decay; biases and norms have none."""
    warmup_epochs: Amount = 10
    """Epochs of linear warm-up, at most half the run; with `minutes`, a third as estimated."""
    extension: Literal["stretch", "restart"] = "stretch"
    """Learning rate of a run that --resume gives other --epochs: stretch continues as if it had
    always been that long, restart begins a new cosine at the peak."""


@dataclass
class LogConfig:
    """What is measured and written while training."""

    every: PositiveCount = 10
    """Steps between two lines of metrics.jsonl."""
    health: Count = 1024
    """Images whose embeddings are examined after each epoch, for signs of collapse; 0 for none."""
    knn_every: Count = 0
    """Epochs between k-NN evaluations, for data with labels; 0 for never."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: bool = False
    """Send metrics to Weights & Biases, which must be installed."""


@dataclass
class PretrainConfig:
    """Pretrain an encoder on images without labels."""

    data: str = ""
    """Images: digits, cifar10, cifar100, a folder, a parquet file or folder, the URL of one (s3://…,
    gs://…, https://…), a quoted pattern such as 'photos/**/*.jpg', or hf:NAME."""
    out: str = ""
    """Folder of the run, which is created."""
    method: str = "wcl"
    """Method, such as wcl or simclr, or package.module:Class for a method of your own."""
    epochs: PositiveCount = 100
    """Passes over the data, unless `minutes` are given."""
    minutes: Annotated[float, between(0, 10**6)] = 0
    """Train for this long instead of a number of epochs; 0 for `epochs`. As many epochs as fit are
    settled by the time that the first one takes, so that the learning rate reaches zero in time.
    Reading the data counts, evaluation after training does not. The run records the number."""
    batch_size: Annotated[int, between(2, 2**24)] = 256
    """Images per step, over all processes."""
    micro_batch_size: Count = 0
    """Images, over all processes, that pass through the network at once, for batches that do not
    fit into memory. The gradient is that of the whole batch; batch norm sees one micro-batch. 0 for
    the whole batch."""
    image_size: Annotated[int, between(1, 4096)] = 224
    """Height and width of a view in pixels."""
    levels: tuple[tuple[float, float], ...] = ()
    """Values of images of more than 8 bits that become black and white: [[black, white]], or such a
    pair for each channel. Empty to measure them on some of the images; a run records them."""
    limit: Count = 0
    """Use only this many images, drawn at random once; 0 for all."""
    classes: Count = 0
    """Use only the images of this many classes, the first by name; 0 for all."""
    seed: Seed = 0
    """Seed of every random choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    crops: CropsConfig = field(default_factory=CropsConfig)
    mild_augment_epochs: Count = 0
    """Epochs with the milder augmentation of MoCo v2 before `augment` takes over."""
    loss: Any = None
    """Settings of the method, an instance of its dataclass; None for its defaults."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    log: LogConfig = field(default_factory=LogConfig)
    max_unreadable_fraction: Amount = 0.5
    """Fraction of unreadable images above which the run fails. Fewer are skipped and listed in
    RUN/skipped.txt."""
    save_every: PositiveCount = 1
    """Epochs between two checkpoints."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    devices: Devices = 1
    """Processes to start on this machine, each with its own GPU or an equal part of the cores.
    Without effect under torchrun and SLURM, which start the processes."""
    timeout_minutes: Annotated[float, above(0)] = 30
    """Minutes after which a process stops waiting for another and the run fails."""
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """Precision of the network; losses are always computed in full precision. auto is bf16-mixed
    where it is faster: on GPUs that have it, and on CPUs with AMX or AVX512-BF16 unless the network
    has depthwise or grouped convolutions."""
    compile: bool = False
    """Compile the network with torch.compile."""
    threads: Threads = 0
    """CPU threads of each training process; 0 leaves it to torch, and gives several processes an
    equal part of the cores. On a busy machine 1 is faster."""
    num_workers: Workers = -1
    """Processes that decode photos for each training process; -1 chooses by the number of cores."""

    def defaults(self) -> "PretrainConfig":
        """Return default settings that include the defaults of this run's method."""
        return PretrainConfig(loss=type(self.loss)())

    @property
    def crop_size(self) -> int:
        """Height and width of a small crop in pixels."""
        return self.crops.size or max(1, self.image_size // 2)
