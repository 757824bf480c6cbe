// Command awslambda is the service as an AWS Lambda function, behind a function
// URL or an HTTP API, with schedules as further triggers.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/hostenv"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/providers/backend"
)

func main() {
	f, err := assemble(context.Background())
	if err != nil {
		slog.Error("function cannot start", "error", err)
		os.Exit(1)
	}
	lambda.Start(f.handle)
}

// assemble wires one instance. The stores stay open as long as the process.
func assemble(ctx context.Context) (*function, error) {
	base := options.Default()
	base.MaxPageBytes = maxPageBytes
	env, err := hostenv.Read(os.LookupEnv, base, os.Stderr)
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.Open(os.LookupEnv, env.Logger, service.Version())
	if err != nil {
		return nil, err
	}
	stores, err := backend.OpenLazily(ctx, backend.FromEnv(os.LookupEnv, backend.Azure))
	if err != nil {
		return nil, err
	}
	svc, err := service.New(service.Config{
		Table: stores.Table, Blobs: stores.Blobs, Exclusive: stores.Exclusive,
		Options: env.Options, InternalToken: env.Token, Auth: env.Auth, Logger: env.Logger,
		Telemetry: tel,
	})
	if err != nil {
		return nil, err
	}
	return &function{svc.Handler(), env.Token, env.Logger, tel}, nil
}
