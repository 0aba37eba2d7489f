# A worker's image: the trainer and what it is linked with, on nothing.
#   docker build -f docker/worker.Dockerfile -t tilewright-worker:0.1.0 .

ARG BASE=debian:bookworm
# source: built here. host: taken from build/images/worker, where docker/collect-root has put it.
ARG ROOT=source

FROM ${BASE} AS source
WORKDIR /source
COPY .ci/install-packages .ci/packages.txt .ci/
RUN .ci/install-packages .ci/packages.txt
COPY . .
ARG COMMIT=
RUN cmake --preset release -DTILEWRIGHT_TESTS=OFF && \
  TILEWRIGHT_COMMIT="$COMMIT" cmake --build --preset release --target tilewright-worker
RUN docker/collect-root build/release/bin/tilewright-worker /image

FROM scratch AS host
COPY build/images/worker /image

FROM ${ROOT} AS root

FROM scratch
COPY --from=root /image /
ENV PATH=/usr/bin
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tilewright-worker"]
