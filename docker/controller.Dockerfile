# The operator's image: the controller and what it is linked with, on nothing.
#   docker build -f docker/controller.Dockerfile -t tilewright-controller:0.1.0 .

ARG BASE=debian:bookworm
# source: built here. host: taken from build/images/controller, where docker/collect-root has put it.
ARG ROOT=source

FROM ${BASE} AS source
WORKDIR /source
COPY .ci/install-packages .ci/packages.txt .ci/
RUN .ci/install-packages .ci/packages.txt
COPY . .
ARG COMMIT=
RUN cmake --preset release -DTILEWRIGHT_TESTS=OFF && \
  TILEWRIGHT_COMMIT="$COMMIT" cmake --build --preset release --target tilewright
RUN docker/collect-root build/release/bin/tilewright /image

FROM scratch AS host
COPY build/images/controller /image

FROM ${ROOT} AS root

FROM scratch
COPY --from=root /image /
ENV PATH=/usr/bin
# Trees of JSON come and go, hundreds of nodes at a time: each thread keeps so many of a size for its next tree.
ENV GLIBC_TUNABLES=glibc.malloc.tcache_count=250
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tilewright"]
