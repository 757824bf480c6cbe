// Command azurefunc is the service as an Azure Functions custom handler. The
// function app around it is in infra/azurefunc.
package main

//go:generate go run ./generate -dir ../../infra/azurefunc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/hostenv"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/providers/backend"
)

// started is when this program began to run, as near as it can tell.
var started = time.Now()

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := hostenv.NoArguments(os.Args[1:])
	if err == nil {
		err = run(ctx)
	}
	if err != nil {
		slog.Error("custom handler ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	at, err := address(os.LookupEnv)
	if err != nil {
		return err
	}
	env, err := hostenv.Read(os.LookupEnv, options.Default(), os.Stderr)
	if err != nil {
		return err
	}
	tel, err := telemetry.Open(os.LookupEnv, env.Logger, service.Version())
	if err != nil {
		return err
	}
	defer tel.Shutdown(context.WithoutCancel(ctx))
	stores, err := backend.OpenLazily(ctx, backend.FromEnv(os.LookupEnv, backend.Azure))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	svc, err := service.New(service.Config{
		Table: stores.Table, Blobs: stores.Blobs, Exclusive: stores.Exclusive,
		Options: env.Options, InternalToken: env.Token, Auth: env.Auth, Logger: env.Logger,
		Telemetry:   tel,
		LosesBodies: true,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	env.Logger.Info("ready", "address", l.Addr().String(), "storage", stores.Description,
		"startupMs", float64(time.Since(started).Microseconds())/1000)
	return svc.ServeHandler(ctx, l, &host{svc.Handler(), env.Token, env.Logger, requestLimit})
}
