# The operator's image, from scratch: the controller and its shared libraries.
#   docker build -f docker/controller.Dockerfile -t tilewright-controller:0.1.0 .

ARG BASE=debian:bookworm
# source: built here. host: copied from build/images/controller, the output of docker/collect-root.
ARG ROOT=source

FROM ${BASE} AS source
WORKDIR /source
COPY .ci/install-packages .ci/packages.txt .ci/
RUN .ci/install-packages .ci/packages.txt
COPY . .
ARG COMMIT=
RUN cmake --preset release -DTILEWRIGHT_TESTS=OFF && \
  TILEWRIGHT_COMMIT="$COMMIT" cmake --build --preset release --target tilewright
# The date of the bill of materials, in seconds since 1970.
ARG SOURCE_DATE_EPOCH=0
RUN docker/collect-root build/release/bin/tilewright /image tilewright-controller

FROM scratch AS host
COPY build/images/controller /image

FROM ${ROOT} AS root

FROM scratch
COPY --from=root /image /
ENV PATH=/usr/bin
# The controller allocates and frees JSON trees of hundreds of nodes; a larger per-thread malloc
# cache (entries per size) keeps them.
ENV GLIBC_TUNABLES=glibc.malloc.tcache_count=250
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tilewright"]
