"""Write the emoji of an npm package as labeled images: drawings, to test adapted weights on.

    npm pack emoji-datasource-google@16.0.0
    tar xzf emoji-datasource-google-16.0.0.tgz
    python examples/emoji_folder.py package DATA/emoji

The classes are the nine categories of Unicode, from flags to food. Every third emoji is a test
image. Emoji are 64 × 64 pixels, on a transparent background that becomes white here. Of emoji that
are drawn alike, as some flags are, only the first is used.
"""

import argparse
import json
from pathlib import Path

from PIL import Image

_NOT_PICTURES = "Component"  # skin tones


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="the unpacked package")
    parser.add_argument("out", type=Path, help="folder to write train/ and test/ into")
    args = parser.parse_args()
    described = json.loads((args.package / "emoji.json").read_text(encoding="utf-8"))
    pictures = [each for each in described if each["category"] != _NOT_PICTURES]
    pictures.sort(key=lambda each: each["sort_order"])
    seen: set[bytes] = set()
    for each in pictures:
        with Image.open(args.package / "img" / "google" / "64" / each["image"]) as image:
            drawn = image.convert("RGBA")
        white = Image.new("RGBA", drawn.size, "white")
        shown = Image.alpha_composite(white, drawn).convert("RGB")
        if shown.tobytes() in seen:
            continue
        split = "test" if len(seen) % 3 == 2 else "train"
        seen.add(shown.tobytes())
        folder = args.out / split / each["category"]
        folder.mkdir(parents=True, exist_ok=True)
        shown.save(folder / each["image"])


if __name__ == "__main__":
    main()
