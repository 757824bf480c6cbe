package azurite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/latticekv/lattice/providers/subprocess"
)

// The account that every Azurite serves. Name and key are published by its
// makers and protect nothing.
const (
	AccountName = "devstoreaccount1"
	AccountKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// The ports on which Azurite and everybody who looks for it agree.
const (
	DefaultBlobPort  = 10000
	DefaultQueuePort = 10001
	DefaultTablePort = 10002
)

const (
	host                = "127.0.0.1"
	defaultStartTimeout = 60 * time.Second
	defaultStopTimeout  = 10 * time.Second
	pollInterval        = 20 * time.Millisecond
	memoryLimitMiB      = 2048
)

// Options says how to run Azurite. The zero value runs it in memory, on free
// ports, from the program that Find finds.
type Options struct {
	// Program is azurite.js or an executable; empty looks for it (see Find).
	Program string
	// Folder keeps blobs and rows between runs; empty keeps them in memory.
	Folder string
	// BlobPort, QueuePort and TablePort to listen on; zero takes a free one.
	BlobPort, QueuePort, TablePort int
	// StartTimeout bounds the wait for the first answer. Zero is 60 s: a busy
	// machine needs several seconds to load the program.
	StartTimeout time.Duration
}

// Server is a running Azurite. All methods are safe for concurrent use.
type Server struct {
	blobURL, tableURL string
	cmd               *exec.Cmd
	output            *output
	gentle            bool
	exited            <-chan struct{}
	stopOnce          sync.Once
}

// Start runs Azurite and returns when it answers. It listens on the loopback
// address alone. The process ends with Stop and, on Linux, with this process.
// The context bounds the start, not the life of the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Program == "" {
		found, err := Find(".")
		if err != nil {
			return nil, err
		}
		o.Program = found
	}
	cmd, err := command(o)
	if err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd, output: newOutput(), gentle: o.Folder != ""}
	cmd.Stdout, cmd.Stderr = s.output, s.output
	if s.exited, err = subprocess.Start(cmd, s.gentle); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Program, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	if err := s.await(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func command(o Options) (*exec.Cmd, error) {
	args := []string{
		"--silent", "--skipApiVersionCheck", "--disableTelemetry",
		"--blobHost", host, "--queueHost", host, "--tableHost", host,
		"--blobPort", fmt.Sprint(o.BlobPort),
		"--queuePort", fmt.Sprint(o.QueuePort),
		"--tablePort", fmt.Sprint(o.TablePort),
	}
	if o.Folder != "" {
		args = append(args, "--location", o.Folder)
	} else {
		args = append(args, "--inMemoryPersistence", "--extentMemoryLimit", fmt.Sprint(memoryLimitMiB))
	}
	name := o.Program
	if strings.HasSuffix(name, ".js") {
		node, err := exec.LookPath("node")
		if err != nil {
			return nil, fmt.Errorf("%w: node is missing, install Node.js 20 or newer: %w", ErrNotInstalled, err)
		}
		args = append([]string{name}, args...)
		name = node
	}
	return exec.Command(name, args...), nil
}

// await polls until both services have said where they listen and answer there.
func (s *Server) await(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if s.locate() && answers(ctx, s.blobURL) && answers(ctx, s.tableURL) {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("azurite ended while it started: %s", s.output.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for azurite to answer: %w: %s", ctx.Err(), s.output.tail())
		case <-tick.C:
		}
	}
}

// locate learns the addresses from what Azurite prints, so that nobody can take
// a port between its choice and its use.
func (s *Server) locate() bool {
	blob, table := s.output.address("Blob"), s.output.address("Table")
	if blob == "" || table == "" {
		return false
	}
	s.blobURL, s.tableURL = blob+"/"+AccountName, table+"/"+AccountName
	return true
}

// answers reports whether an Azurite serves the address. Any status will do: the
// request carries no credential.
func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return strings.HasPrefix(resp.Header.Get("Server"), "Azurite")
}

// BlobURL is the address of the blob service, with the account.
func (s *Server) BlobURL() string { return s.blobURL }

// TableURL is the address of the table service, with the account.
func (s *Server) TableURL() string { return s.tableURL }

// ConnectionString names account, key and both services in the form that the
// providers take.
func (s *Server) ConnectionString() string { return connectionString(s.blobURL, s.tableURL) }

func connectionString(blobURL, tableURL string) string {
	return "DefaultEndpointsProtocol=http;AccountName=" + AccountName + ";AccountKey=" + AccountKey +
		";BlobEndpoint=" + blobURL + ";TableEndpoint=" + tableURL + ";"
}

// PID is the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Exited is closed when the process has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends the process and returns when it is gone. With a folder it first asks
// it to finish its writes, and kills it if that takes more than 10 s. Further
// calls do nothing.
func (s *Server) Stop() {
	s.stopOnce.Do(func() {
		if s.gentle && subprocess.Terminate(s.cmd.Process) == nil {
			select {
			case <-s.exited:
				return
			case <-time.After(defaultStopTimeout):
			}
		}
		// An error means that it has ended already.
		_ = s.cmd.Process.Kill()
	})
	<-s.exited
}

// Default returns the connection string of the Azurite at the default ports. If
// none answers there it starts one that keeps its data in folder, and returns it
// too; the caller stops it. An answer by half, or by another program, is an
// error: two servers must not share a folder.
func Default(ctx context.Context, folder string) (string, *Server, error) {
	return adoptOrStart(ctx, Options{
		Folder:   folder,
		BlobPort: DefaultBlobPort, QueuePort: DefaultQueuePort, TablePort: DefaultTablePort,
	})
}

// adoptOrStart uses what answers at the ports, or starts a server there.
func adoptOrStart(ctx context.Context, o Options) (string, *Server, error) {
	blobURL := fmt.Sprintf("http://%s:%d/%s", host, o.BlobPort, AccountName)
	tableURL := fmt.Sprintf("http://%s:%d/%s", host, o.TablePort, AccountName)
	if answers(ctx, blobURL) && answers(ctx, tableURL) {
		return connectionString(blobURL, tableURL), nil, nil
	}
	if o.Folder == "" {
		return "", nil, errors.New("start azurite: no folder given")
	}
	s, err := Start(ctx, o)
	if err != nil {
		return "", nil, err
	}
	return s.ConnectionString(), s, nil
}
