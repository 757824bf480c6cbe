package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
)

func mustParse(t *testing.T, args ...string) *settings {
	t.Helper()
	s, err := parse(args, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDefaultsServeAloneOnThisMachine(t *testing.T) {
	s := mustParse(t)
	if s.Store != "bolt" || s.DataDir != "./lattice-data" || s.Listen != "127.0.0.1:8080" {
		t.Errorf("store %s in %s on %s", s.Store, s.DataDir, s.Listen)
	}
	if !s.Options.Leases {
		t.Error("leases are off, though this process serves alone")
	}
	if s.TLS || s.Level != slog.LevelInfo || s.LogFormat != "text" || s.InternalToken != "" {
		t.Errorf("%+v", s)
	}
	if options.Default().Leases {
		t.Error("parsing changed the defaults for everybody")
	}
}

func TestEveryOptionIsFlagAndVariable(t *testing.T) {
	for _, d := range options.Describe() {
		t.Run(d.Name, func(t *testing.T) {
			o := options.Default()
			o.Leases = false
			text := d.Default
			if d.Kind == options.KindBool {
				text = "false"
			}
			if err := o.Set(d.Name, text); err != nil {
				t.Fatal(err)
			}
			byFlag := mustParse(t, "--leases=false", "--"+d.Flag+"="+text)
			if byFlag.Options.Origin(d.Name) != options.OriginService {
				t.Errorf("--%s did not set %s", d.Flag, d.Name)
			}
			t.Setenv(d.Env, text)
			byEnv := mustParse(t)
			if byEnv.Options.Origin(d.Name) != options.OriginService {
				t.Errorf("%s did not set %s", d.Env, d.Name)
			}
		})
	}
}

func TestEveryCredentialIsFlagAndVariable(t *testing.T) {
	fields := reflect.TypeFor[auth.Config]()
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		text := map[reflect.Kind]string{reflect.String: "x", reflect.Bool: "true", reflect.Int: "7", reflect.Float64: "2.5", reflect.Int64: "7s"}[fields.Field(i).Type.Kind()]
		read := func(args ...string) auth.Config {
			// What is given makes no sense alone; that it is read is what matters.
			s, _ := parse(args, io.Discard, io.Discard)
			return s.Credentials
		}
		before := reflect.ValueOf(read()).Field(i).Interface()
		if flag := tag.Get("name"); flag == "" {
			if tag.Get("kong") != "-" {
				t.Errorf("%s is no flag", fields.Field(i).Name)
			}
		} else if after := reflect.ValueOf(read("--" + flag + "=" + text)).Field(i).Interface(); after == before {
			t.Errorf("--%s sets nothing", flag)
		}
		t.Run(tag.Get("env"), func(t *testing.T) {
			t.Setenv(tag.Get("env"), text)
			if after := reflect.ValueOf(read()).Field(i).Interface(); after == before {
				t.Errorf("%s sets nothing", tag.Get("env"))
			}
		})
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Setenv("LATTICE_LEASE_DURATION", "20s")
	t.Setenv("LATTICE_STORE", "memory")
	if s := mustParse(t); s.Options.LeaseDuration != 20*time.Second || s.Store != "memory" {
		t.Errorf("environment gave %s and %s", s.Options.LeaseDuration, s.Store)
	}
	s := mustParse(t, "--lease-duration", "40s", "--store=azurite")
	if s.Options.LeaseDuration != 40*time.Second || s.Store != "azurite" {
		t.Errorf("flags gave %s and %s", s.Options.LeaseDuration, s.Store)
	}
}

func TestSwitchesNeedNoValue(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{{[]string{"--leases"}, true}, {[]string{"--leases=false"}, false}, {[]string{"--leases=true"}, true}, {nil, true}} {
		if s := mustParse(t, c.args...); s.Options.Leases != c.want {
			t.Errorf("%v gave %v", c.args, s.Options.Leases)
		}
	}
	t.Setenv("LATTICE_LEASES", "false")
	if s := mustParse(t); s.Options.Leases {
		t.Error("the environment did not switch leases off")
	}
}

func TestSecretsComeFromTheEnvironmentAlone(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=c2VjcmV0")
	t.Setenv("LATTICE_INTERNAL_TOKEN", "token")
	s := mustParse(t, "--store=azure")
	if s.ConnectionString == "" || s.InternalToken != "token" {
		t.Fatal("a secret of the environment was not read")
	}
	for _, flag := range []string{"--connection-string=x", "--internal-token=x", "--auth-keys=x"} {
		if _, err := parse([]string{flag}, io.Discard, io.Discard); err == nil {
			t.Errorf("%s is accepted where everybody on the machine can read it", flag)
		}
	}
}

func TestAllFaultsAreToldTogether(t *testing.T) {
	_, err := parse([]string{
		"--store=redis", "--log-level=loud", "--log-format=xml", "--tls-cert=c.pem",
		"--lease-duration=soon", "--max-key-length=0", "--merge-ratio=7", "--leases=maybe",
	}, io.Discard, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"redis", "loud", "xml", "certificate", "LeaseDuration", "MaxKeyLength", "MergeRatio", "Leases"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told in:\n%v", want, err)
		}
	}
}

func TestUnknownFlagsAndArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"surplus"}, {"--listen"}} {
		if _, err := parse(args, io.Discard, io.Discard); err == nil || errors.Is(err, errHelp) || !strings.Contains(err.Error(), "see --help") {
			t.Errorf("%v gave %v", args, err)
		}
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, &out, io.Discard); !errors.Is(err, errHelp) {
		t.Fatalf("got %v", err)
	}
	for _, d := range options.Describe() {
		if !strings.Contains(out.String(), "--"+d.Flag) || !strings.Contains(out.String(), "$"+d.Env) {
			t.Errorf("the help does not tell --%s and %s", d.Flag, d.Env)
		}
	}
}
