# For machines without a GPU:
#   docker build -t wcl .
#   docker run --rm --user "$(id -u)" -v ~/photos:/photos:ro -v "$PWD/runs:/runs" wcl data /photos
FROM python:3.13-slim
# The extra index has builds of torch without CUDA. HOME is a folder that every user can write to.
ENV PIP_CONSTRAINT=/wcl/constraints.txt \
    PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu \
    HOME=/tmp
WORKDIR /wcl
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir '.[onnx]' && wcl --version
WORKDIR /
ENTRYPOINT ["wcl"]
