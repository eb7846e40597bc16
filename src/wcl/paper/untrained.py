"""Networks with their initial weights, which tables compare trained ones with."""

from wcl.config import PretrainConfig
from wcl.system.run_folder import RunFolder
from wcl.training.setup import build_method, open_images


def write_untrained(config: PretrainConfig, folder: RunFolder) -> None:
    """Write the encoder of a run as it is before the first step."""
    source = open_images(config)
    folder.path.mkdir(exist_ok=True)
    build_method(config, source, steps_per_epoch=1).encoder.save(folder.encoder)
