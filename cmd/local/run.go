package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/backend"
)

// run serves until ctx ends. What it says on the way goes to stderr.
func run(ctx context.Context, s *settings, stderr io.Writer) (err error) {
	logger := slog.New(telemetry.LogHandler(logHandler(s, stderr)))
	tel, err := telemetry.Open(os.LookupEnv, logger, service.Version())
	if err != nil {
		return err
	}
	defer tel.Shutdown(context.WithoutCancel(ctx))
	cert, err := certificate(s)
	if err != nil {
		return err
	}
	// The address comes first: it is what a second start trips over, and it is
	// given back by itself.
	l, err := listen(s.Listen)
	if err != nil {
		return err
	}
	defer l.Close() // Serve closes it earlier, this is for the errors before
	who, err := credentials(s, l.Addr(), logger)
	if err != nil {
		return err
	}
	stores, err := backend.Open(ctx, s.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if s.InternalToken == "" {
		s.InternalToken = rand.Text()
	}
	svc, err := service.New(service.Config{
		Table: stores.Table, Blobs: stores.Blobs, Exclusive: stores.Exclusive,
		Options: s.Options, InternalToken: s.InternalToken, Auth: who, Logger: logger, Telemetry: tel,
	})
	if err != nil {
		return err
	}
	say := announcer(s, stderr, logger)
	greet(say, s, l.Addr(), cert, stores)
	context.AfterFunc(ctx, func() { say("shutting down; a second signal ends at once") })
	return serve(ctx, s, svc, l, cert, logger)
}

// credentials makes what tells who calls. Without any, an address that other
// machines can reach is refused, unless that is what was asked for.
func credentials(s *settings, at net.Addr, logger *slog.Logger) (*auth.Authenticator, error) {
	who, err := auth.New(s.Credentials, clock.NewSystem(), logger)
	if err != nil {
		return nil, err
	}
	if who == nil && !loopback(at) && !s.Credentials.InsecureNoAuth {
		return nil, fmt.Errorf("%s can be reached from other machines, and there are no credentials: give --auth-keys-file or --auth-jwt-issuer, "+
			"listen on 127.0.0.1, or say --insecure-no-auth", at)
	}
	return who, nil
}

// serve answers requests and runs the schedule, both until ctx ends or serving
// fails.
func serve(ctx context.Context, s *settings, svc *service.Service, l net.Listener, cert *tls.Certificate, logger *slog.Logger) error {
	sched := &schedule{
		clock: clock.NewSystem(), logger: logger,
		every: intervals(&s.Options),
		call: func(ctx context.Context, timer string) (json.RawMessage, error) {
			return tick.InProcess(ctx, svc.Handler(), s.InternalToken, timer)
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.run(ctx)
	}()
	err := answer(ctx, svc, l, cert, front(s, svc))
	cancel()
	<-done
	return err
}

// front is the handler of the service. Where nobody needs a credential, pages of
// other sites are kept out, unless it was said that everybody may do everything.
func front(s *settings, svc *service.Service) http.Handler {
	if s.Credentials.Configured() || s.Credentials.InsecureNoAuth {
		return svc.Handler()
	}
	return newOwnPages(svc.Handler(), certifiedHosts(s.Listen))
}

// answer serves by HTTPS if there is a certificate.
func answer(ctx context.Context, svc *service.Service, l net.Listener, cert *tls.Certificate, front http.Handler) error {
	if cert == nil {
		return svc.ServeHandler(ctx, l, front)
	}
	return svc.ServeTLS(ctx, l, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}, front)
}

// greet says where the service is, where its state is, and what to try first.
func greet(say func(string), s *settings, at net.Addr, cert *tls.Certificate, stores *backend.Backend) {
	base := baseURL(at, cert)
	say("store: " + stores.Description)
	secured := s.Credentials.Configured()
	switch {
	case loopback(at):
	case !secured:
		say(fmt.Sprintf("WARNING: %s can be reached from other machines, and there is no authentication: "+
			"whoever connects can read, change and delete everything", at))
	case cert == nil:
		say(fmt.Sprintf("WARNING: %s can be reached from other machines without TLS: "+
			"whoever is on the way can read tokens; serve with --tls, or behind a proxy that does", at))
	}
	more := ""
	if s.TLS && s.TLSCert == "" {
		more = "--cacert " + s.DataDir + "/tls/cert.pem "
	}
	if secured {
		more += `-H "Authorization: Bearer $LATTICE_TOKEN" `
	}
	say("try: curl " + more + "-X PUT -d world " + base + "/v1/trees/demo/keys/hello")
	say("listening on " + base)
}

// announcer returns how to tell the operator something: as a line, or as a log
// entry where the log is for machines.
func announcer(s *settings, stderr io.Writer, logger *slog.Logger) func(string) {
	if s.LogFormat == "json" {
		return func(line string) { logger.Log(context.Background(), slog.LevelInfo, line) }
	}
	return func(line string) { fmt.Fprintln(stderr, "local: "+line) }
}

func logHandler(s *settings, w io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: s.Level}
	if s.LogFormat == "json" {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}
