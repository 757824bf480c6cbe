package hostile

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The limits of the programs under burden, small enough to be reached.
const (
	requestTimeout = 3 * time.Second
	maxConnections = 200
	maxBuffered    = 24 << 20
	// maxGrowth is how much memory a program may take for all that is done to it
	// here: the bodies that it holds at once, as much of garbage, a page for each
	// reader that it streams to, and connections.
	maxGrowth = 150 << 20
	// attackers is how many connections attack at once.
	attackers = 48
)

// burden is a program that is being attacked by many.
type burden struct {
	*testing.T
	w      *world
	target target
}

// TestOversizedAndSlowRequestsTakeBoundedMemory attacks by many connections at
// once: slow headers, bodies and readers, bombs, lines without end. Every request
// ends with its status in time, memory stays within bounds, and what was taken
// for the attackers is given back.
func TestOversizedAndSlowRequestsTakeBoundedMemory(t *testing.T) {
	w := newWorld(t, "LATTICE_REQUEST_TIMEOUT="+requestTimeout.String(), "LATTICE_ROUTING_RETRY_BUDGET=1s", fmt.Sprintf("LATTICE_MAX_CONNECTIONS=%d", maxConnections),
		fmt.Sprintf("LATTICE_MAX_BUFFERED_BYTES=%d", maxBuffered), "LATTICE_CACHE_BYTES=16MiB")
	w.large()
	// Reads that are allowed are counted, for splits; that is no trace of attacks.
	before := w.snapshot()
	maps.DeleteFunc(before, isCounter)
	t.Run("at once", func(t *testing.T) {
		for _, target := range w.targets {
			t.Run(target.name, func(t *testing.T) {
				t.Parallel()
				(&burden{t, w, target}).run()
			})
		}
	})
	w.unchanged(before, isCounter)
	w.alive()
}

// isCounter tells the rows in which instances count what they serve.
func isCounter(name, _ string) bool {
	return strings.HasPrefix(name, "row ") && strings.Contains(name, " count-")
}

// large stores what slow readers ask for.
func (w *world) large() {
	w.t.Helper()
	for i := range 16 {
		got := w.as(w.keys["admin *"], "PUT", fmt.Sprintf("/v1/trees/orders-large/keys/%d", i), "", strings.Repeat("x", 1<<20))
		if got.Status != 201 {
			w.t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
}

func (b *burden) run() {
	resident, routines := b.memory("VmRSS"), b.gauge("go_goroutines")
	for name, attack := range map[string]func(){
		"bombs": b.bombs, "slow headers": b.slowHeaders, "slow bodies": b.slowBodies, "slow readers": b.slowReaders,
		"lines without end": b.endlessLines, "connections": b.connections, "a second request behind the first": b.smuggling,
	} {
		began := time.Now()
		attack()
		grown := b.memory("VmHWM") - resident
		b.Logf("%s: %s, memory up to %d MiB more", name, time.Since(began).Round(time.Millisecond), grown>>20)
		if grown > maxGrowth {
			b.Errorf("%s: the program took %d MiB", name, grown>>20)
		}
	}
	// What stays are connections to the storage, which are pooled: two routines for
	// each of the attackers at most.
	until(b.T, b.target.process, func() bool {
		return b.gauge("lattice_http_requests_in_flight") == 0 && b.open() <= 2 && b.gauge("go_goroutines") < routines+2*attackers+20
	})
}

// memory reads a figure of the process, in bytes.
func (b *burden) memory(name string) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.target.process.PID()))
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("no %s in %s", name, text)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

// gauge reads a metric without labels.
func (b *burden) gauge(name string) int {
	b.Helper()
	got := call(b.T, b.target.address, internalToken, "GET", "/metrics", "", "")
	found := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindStringSubmatch(got.Body)
	if found == nil {
		b.Fatalf("no %s", name)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// open counts the connections that the program has open with callers.
func (b *burden) open() int {
	b.Helper()
	http.DefaultClient.CloseIdleConnections()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		b.Fatal(err)
	}
	_, port, err := net.SplitHostPort(b.target.address)
	if err != nil {
		b.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		b.Fatal(err)
	}
	// Local address, remote address, and the state established.
	return len(regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]{8}:%04X [0-9A-F:]{13} 01 `, number)).FindAll(text, -1))
}

// together runs an attack on many connections and waits for all.
func (b *burden) together(attack func(i int, conn net.Conn)) {
	b.Helper()
	var all sync.WaitGroup
	for i := range attackers {
		all.Go(func() {
			conn, err := net.Dial("tcp", b.target.address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				b.Error(err)
				return
			}
			attack(i, conn)
		})
	}
	all.Wait()
}

// answered reads the status, 0 if the connection ended without one.
func answered(conn net.Conn) int {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// endsWith fails unless a connection is answered with one of the statuses; 0 is
// an end without one.
func (b *burden) endsWith(what string, conn net.Conn, statuses ...int) {
	b.Helper()
	got := answered(conn)
	for _, s := range statuses {
		if got == s {
			return
		}
	}
	b.Errorf("%s: answered %d, want one of %v", what, got, statuses)
}

func (b *burden) writer(line string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + b.w.bearer("writer orders*") + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
}

// send writes what the other end takes of it.
func send(conn net.Conn, parts ...string) {
	for _, p := range parts {
		if _, err := io.WriteString(conn, p); err != nil {
			return
		}
	}
}

// bombs are sent by all at once. A body over a limit may meet the bound of what
// is held: 503 then.
func (b *burden) bombs() {
	packed := bombs(b.T)
	const jsonType = "Content-Type: application/json"
	b.together(func(i int, conn net.Conn) {
		length := func(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) }
		switch i % 4 {
		case 0:
			send(conn, b.writer(write, "Content-Encoding: gzip", length(packed["gzip"])), packed["gzip"])
			b.endsWith("gzip", conn, 415)
		case 1:
			deep := strings.Repeat("[", 180_000)
			send(conn, b.writer("POST /v1/trees/orders-1/batch", jsonType, length(deep)), deep)
			b.endsWith("nested arrays", conn, 400, 503)
		case 2:
			members := "{" + strings.Repeat(`"a":0,`, 30_000) + `"b":0}`
			send(conn, b.writer("POST /v1/trees/orders-1/batch", jsonType, length(members)), members)
			b.endsWith("members", conn, 400, 503)
		case 3:
			go send(conn, b.writer(write, "Transfer-Encoding: chunked"), strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 64))
			b.endsWith("a value in pieces", conn, 413, 503)
		}
	})
}

// slowHeaders never finish what they say.
func (b *burden) slowHeaders() {
	began := time.Now()
	b.together(func(_ int, conn net.Conn) {
		stop := drip(conn, write+" HTTP/1.1\r\nHost: h\r\n", "X-A: b\r\n")
		defer stop()
		b.endsWith("a slow header", conn, 0, 400, 408)
	})
	if took := time.Since(began); took > 3*requestTimeout {
		b.Errorf("slow headers were waited for for %s", took)
	}
}

// drip sends the beginning, and then a piece five times a second, until it is
// stopped or the other end does not want more.
func drip(conn net.Conn, begin, piece string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		send(conn, begin)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// slowBodies announce a value and send a byte now and then, most of it at first.
func (b *burden) slowBodies() {
	b.together(func(i int, conn net.Conn) {
		begin, path := strings.Repeat("x", 900<<10), write
		more := []string{"Content-Length: " + strconv.Itoa(1<<20)}
		if i%2 == 1 {
			begin, path, more = `{"key":"z","text":"`, "POST /v1/trees/orders-new/bulk-load?mode=stream", []string{"Content-Type: application/x-ndjson", "Content-Length: 1000"}
		}
		stop := drip(conn, b.writer(path, more...)+begin, "x")
		defer stop()
		b.endsWith("a slow body", conn, 400, 503)
	})
}

// endlessLines are entries that never end.
func (b *burden) endlessLines() {
	told := make(chan struct{}, attackers)
	b.together(func(_ int, conn net.Conn) {
		begin := b.writer("POST /v1/trees/orders-new/bulk-load?mode=stream", "Content-Type: application/x-ndjson", "Content-Length: 99999999999")
		go send(conn, begin, `{"key":"z","text":"`, strings.Repeat("x", 6<<20))
		switch status := answered(conn); status {
		case 413, 503:
			told <- struct{}{}
		case 0, 400: // where the machine is busy, the time is over first
		default:
			b.Errorf("a line without end is answered with %d", status)
		}
	})
	if len(told) < attackers/4 {
		b.Errorf("%d of %d were told why", len(told), attackers)
	}
}

// slowReaders ask for much and read nothing of it. They stay; the service does
// not wait for them.
func (b *burden) slowReaders() {
	all, over := make(chan net.Conn, attackers), make(chan struct{})
	go func() {
		defer close(over)
		for range attackers {
			<-all
		}
		until(b.T, b.target.process, func() bool { return b.gauge("lattice_http_requests_in_flight") == 0 })
	}()
	b.together(func(_ int, conn net.Conn) {
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			b.Error(err)
			return
		}
		send(conn, b.writer("GET /v1/trees/orders-large/entries", "Accept: application/x-ndjson"))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			b.Errorf("no answer begins: %v", err)
		}
		all <- conn
		<-over
		conn.Close()
	})
}

// connections opens more than there may be, all silent. Others wait for them, and
// not long.
func (b *burden) connections() {
	var silent []net.Conn
	for range maxConnections + 100 {
		conn, err := net.Dial("tcp", b.target.address)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	began := time.Now()
	got := call(b.T, b.target.address, b.w.keys["reader orders*"], "GET", "/v1/trees/orders-1/keys/a", "", "")
	if took := time.Since(began); got.Status != 200 || took > 5*requestTimeout {
		b.Errorf("answered %d after %s", got.Status, took)
	}
	for _, conn := range silent {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			b.Fatal(err)
		}
		if got := answered(conn); got != 0 {
			b.Errorf("a silent connection is answered with %d", got)
		}
	}
}

// smuggling hides a request in the body of another: whoever takes it for a second
// one finds that it needs a credential of its own.
func (b *burden) smuggling() {
	hidden := "POST /internal/timers/collect HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	for name, raw := range map[string]string{
		"a length and pieces": b.kept("Content-Length: 4", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n" + hidden,
		"pieces and a length": b.kept("Transfer-Encoding: chunked", "Content-Length: "+strconv.Itoa(len(hidden))) + "0\r\n\r\n" + hidden,
		"too short a length":  b.kept("Content-Length: 0") + hidden,
	} {
		conn, err := net.Dial("tcp", b.target.address)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		send(conn, raw)
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			b.Fatal(err)
		}
		all, _ := io.ReadAll(conn) // which ends with the connection
		for _, line := range regexp.MustCompile(`HTTP/1\.1 (\d+)`).FindAllStringSubmatch(string(all), -1) {
			if line[1] != "403" && line[1] != "401" && line[1] != "400" {
				b.Errorf("%s: %.300s", name, all)
			}
		}
	}
}

// kept is a request of a reader who may not write, on a connection that stays.
func (b *burden) kept(headers ...string) string {
	return write + " HTTP/1.1\r\nHost: h\r\n" + b.w.bearer("reader orders*") + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
}
