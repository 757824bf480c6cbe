package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/providers/backend"
)

// internalTokenVariable sets the internal credential, for those who call the
// timers from outside. Without it every process draws its own.
const internalTokenVariable = "LATTICE_INTERNAL_TOKEN"

// flags are the command line; every flag is an environment variable, too.
type flags struct {
	backend.Config `embed:"" group:"Storage"`

	Listen  string `default:"127.0.0.1:8080" env:"LATTICE_LISTEN" placeholder:"HOST:PORT" help:"Address to serve on; port 0 takes a free one. Default ${default}."`
	TLS     bool   `name:"tls" env:"LATTICE_TLS" help:"Serve HTTPS with a self-signed certificate, made once and kept in the data folder."`
	TLSCert string `name:"tls-cert" env:"LATTICE_TLS_CERT" placeholder:"FILE" help:"Serve HTTPS with this certificate (PEM, with its chain)."`
	TLSKey  string `name:"tls-key" env:"LATTICE_TLS_KEY" placeholder:"FILE" help:"Key of the certificate (PEM)."`

	Health bool `help:"Do not serve: ask the service that listens at --listen whether it answers, and end with status 0 or 1. For health checks of containers."`

	Credentials auth.Config `embed:"" group:"Credentials"`

	LogFormat string `default:"text" env:"LATTICE_LOG_FORMAT" placeholder:"FORMAT" help:"text or json. Default ${default}."`
	LogLevel  string `default:"info" env:"LATTICE_LOG_LEVEL" placeholder:"LEVEL" help:"debug, info, warn or error. Default ${default}."`
}

// settings are what a valid command line and environment say.
type settings struct {
	flags
	// Options of the service.
	Options options.Options
	// Level of the log.
	Level slog.Level
	// InternalToken is empty if none was given.
	InternalToken string
}

// errHelp says that help was asked for and given.
var errHelp = errors.New("help was shown")

// parse reads command line and environment. The error joins every fault of a
// value; it is errHelp if there is nothing to do.
func parse(args []string, stdout, stderr io.Writer) (*settings, error) {
	s := &settings{Options: options.Default()}
	// One process that serves alone is what this program is for.
	s.Options.Leases = true
	texts := newOptionFlags()
	exited := false
	parser, err := kong.New(&s.flags, kong.Name("local"), kong.Writers(stdout, stderr),
		kong.Description("Serves Lattice on this machine: the API, and the schedule that a cloud host would run. "+
			"OTEL_EXPORTER_OTLP_ENDPOINT sends traces and metrics to a collector by OTLP over HTTP; docs/telemetry.md has the other variables."),
		kong.Vars{"connection": backend.ConnectionStringVariable},
		kong.Embed(texts.Interface(), `group:"Options of the service"`),
		kong.Exit(func(int) { exited = true }))
	if err != nil {
		return nil, fmt.Errorf("build the command line: %w", err)
	}
	_, err = parser.Parse(args)
	if exited {
		return nil, errHelp
	}
	if err != nil {
		return nil, fmt.Errorf("%w; see --help", err)
	}
	s.ConnectionString = os.Getenv(backend.ConnectionStringVariable)
	s.Credentials.Keys = os.Getenv(auth.KeysVariable)
	s.InternalToken = os.Getenv(internalTokenVariable)
	return s, s.resolve(texts)
}

func (s *settings) resolve(texts reflect.Value) error {
	faults := []error{s.Config.Check(), s.Credentials.Check(), setOptions(&s.Options, texts), s.Options.Validate()}
	if err := s.Level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		faults = append(faults, fmt.Errorf("log level %q is not one of debug, info, warn, error", s.LogLevel))
	}
	if s.LogFormat != "text" && s.LogFormat != "json" {
		faults = append(faults, fmt.Errorf("log format %q is neither text nor json", s.LogFormat))
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		faults = append(faults, errors.New("a certificate and its key must be given together"))
	}
	return errors.Join(faults...)
}

// optionText is the text given for one option; a bool may be named alone.
type optionText struct {
	text string
	set  bool
}

// Decode implements kong.MapperValue.
func (o *optionText) Decode(ctx *kong.DecodeContext) error {
	o.set = true
	return ctx.Scan.PopValueInto("value", &o.text)
}

// optionSwitch is an optionText whose flag needs no value.
type optionSwitch struct{ optionText }

// Decode implements kong.MapperValue.
func (o *optionSwitch) Decode(ctx *kong.DecodeContext) error {
	o.set, o.text = true, "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		o.text = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	return nil
}

// IsBool implements kong.BoolMapperValue.
func (o *optionSwitch) IsBool() bool { return true }

// newOptionFlags returns a pointer to a struct with one field for each option
// of the service, tagged as kong wants it. The values stay text, so that all
// faults can be told together.
func newOptionFlags() reflect.Value {
	var fields []reflect.StructField
	for _, d := range options.Describe() {
		kind := reflect.TypeFor[optionText]()
		if d.Kind == options.KindBool {
			kind = reflect.TypeFor[optionSwitch]()
		}
		tag := fmt.Sprintf(`name:%q env:%q placeholder:%q help:%q`, d.Flag, d.Env,
			strings.ToUpper(string(d.Kind)), capitalised(d.Doc)+". Default "+d.Default+".")
		if d.Name == "Leases" {
			tag = fmt.Sprintf(`name:%q env:%q help:%q`, d.Flag, d.Env, capitalised(d.Doc)+". Default true here.")
		}
		fields = append(fields, reflect.StructField{Name: d.Name, Type: kind, Tag: reflect.StructTag(tag)})
	}
	return reflect.New(reflect.StructOf(fields))
}

func capitalised(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// setOptions applies what was given and returns every fault.
func setOptions(o *options.Options, texts reflect.Value) error {
	var faults []error
	for _, name := range options.Names() {
		var given optionText
		switch v := texts.Elem().FieldByName(name).Interface().(type) {
		case optionText:
			given = v
		case optionSwitch:
			given = v.optionText
		}
		if given.set {
			faults = append(faults, o.Set(name, given.text))
		}
	}
	return errors.Join(faults...)
}
