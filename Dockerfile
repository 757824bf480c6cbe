# The service as an image: one static program, the certificates that it trusts, and a folder for data. It builds without
# a network, from the module cache of the machine:
#
#   go mod download
#   docker build --build-context "modcache=$(go env GOMODCACHE)" --build-arg "VERSION=$(git describe --always)" -t lattice .
#
# With a network, and without Go on the machine:
#
#   docker build --build-arg GOPROXY=… --build-arg GOMODCACHE=/gomod -t lattice .
#
# docs/deploy.md says how to run it.

# Any image with Go at /usr/local/go and the certificates of the authorities at Debian's place.
ARG GO_IMAGE=docker.io/library/golang:1.26

# Stands for the module cache, which the build context of this name replaces.
FROM scratch AS modcache

FROM ${GO_IMAGE} AS build
ARG TARGETARCH
ARG VERSION=
# Where modules are, and where they are looked for. Their hashes are in go.sum, wherever they come from.
ARG GOMODCACHE=/modcache
ARG GOPROXY=off
ENV CGO_ENABLED=0 \
    GOARCH=${TARGETARCH} \
    GOCACHE=/gocache \
    GOMODCACHE=${GOMODCACHE} \
    GOPROXY=${GOPROXY} \
    GOTOOLCHAIN=local \
    GOFLAGS="-mod=readonly -trimpath -buildvcs=false '-ldflags=-s -w -X github.com/latticekv/lattice/functions/service.stamped=${VERSION}'"
# An empty folder, to be given to its owner below.
WORKDIR /data
WORKDIR /src
COPY . .
# The form without a shell, which GO_IMAGE need not have.
RUN --mount=type=bind,from=modcache,target=/modcache ["/usr/local/go/bin/go", "build", "-o", "/out/local", "./cmd/local"]

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/local /local
COPY --from=build --chown=65532:65532 /data /data
# A number: hosts that refuse root can tell that this is not.
USER 65532:65532
# In a container the loopback address is its own, so the service listens on all and wants credentials. The grace period
# ends before Docker, ten seconds after SIGTERM, kills.
ENV LATTICE_LISTEN=0.0.0.0:8080 \
    LATTICE_DATA_DIR=/data \
    LATTICE_LOG_FORMAT=json \
    LATTICE_SHUTDOWN_GRACE_PERIOD=8s
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 CMD ["/local", "--health"]
ENTRYPOINT ["/local"]
