package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/bolt"
)

// The test binary runs itself as a child that does one of these things in the
// directory that childDir names.
const (
	childTask = "BOLT_TEST_TASK"
	childDir  = "BOLT_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childTask) {
	case "write":
		writeForEver(os.Getenv(childDir))
	case "hold":
		holdOpen(os.Getenv(childDir))
	default:
		os.Exit(m.Run())
	}
}

// child starts the test binary with a task and returns it with its output.
func child(t *testing.T, task, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childTask+"="+task, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// writers is the number of goroutines of the writing child.
const writers = 8

// writeForEver appends to a log per writer and puts blobs on both sides of the
// inline limit, and prints each name once its write was acknowledged.
func writeForEver(dir string) {
	s, err := bolt.Open(dir, bolt.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format, args...)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			if err := writeLog(s, fmt.Sprintf("log-%d", w), say); err != nil {
				say("failed %v\n", err)
			}
		})
	}
	wg.Wait()
}

func writeLog(s *bolt.Store, name string, say func(string, ...any)) error {
	ctx := context.Background()
	etags, err := s.Table().Apply(ctx, name, []store.Op{store.Insert("~head", []byte("0"))})
	if err != nil {
		return err
	}
	head := etags[0]
	for n := 1; n < 1_000_000; n++ {
		ops := []store.Op{store.Insert(logKey(n), logData(n)), store.Replace("~head", []byte(strconv.Itoa(n)), head)}
		if etags, err = s.Table().Apply(ctx, name, ops); err != nil {
			return err
		}
		head = etags[1]
		say("row %s %d\n", name, n)
		if n%10 == 0 {
			blob := fmt.Sprintf("%s/%d", name, n)
			if _, err := s.Blobs().Put(ctx, blob, logBlob(n), store.Create); err != nil {
				return err
			}
			say("blob %s %d\n", blob, n)
		}
	}
	return nil
}

func logKey(n int) string  { return fmt.Sprintf("%08d", n) }
func logData(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 1+n%3000) }
func logBlob(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n%4*20_000) }

// TestKilledProcessLosesNothingAcknowledged kills a writing process without
// warning, several times in the same directory, and then demands every write
// that was acknowledged, whole transactions, and no trace of anything else.
func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	for round, acks := range []int{1, 50, 500} {
		t.Run(fmt.Sprintf("after %d", acks), func(t *testing.T) {
			dir := t.TempDir()
			cmd, lines := child(t, "write", dir)
			rows, blobs := map[string]int{}, map[string]int{}
			for n := 0; lines.Scan(); n++ {
				var kind, name string
				var number int
				if _, err := fmt.Sscanf(lines.Text(), "%s %s %d", &kind, &name, &number); err != nil || kind == "failed" {
					t.Errorf("the child says %q", lines.Text())
				}
				if kind == "row" {
					rows[name] = number
				} else {
					blobs[name] = number
				}
				if n == acks {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("the child ended by itself")
			}
			s := open(t, dir, bolt.Options{Verify: true})
			for w := range writers {
				name := fmt.Sprintf("log-%d", w)
				checkLog(t, s, name, rows[name])
			}
			for name, n := range blobs {
				if data, _, err := s.Blobs().Get(t.Context(), name); err != nil || !bytes.Equal(data, logBlob(n)) {
					t.Errorf("blob %q has %d bytes, error %v", name, len(data), err)
				}
			}
			t.Logf("round %d: %d rows and %d blobs acknowledged", round, len(rows), len(blobs))
		})
	}
}

// checkLog demands rows 1 to head without a gap, and a head not before the
// last acknowledged row.
func checkLog(t *testing.T, s *bolt.Store, name string, acknowledged int) {
	t.Helper()
	head, err := s.Table().Get(t.Context(), name, "~head")
	if errors.Is(err, store.ErrNotFound) && acknowledged == 0 {
		return
	}
	last, convErr := strconv.Atoi(string(head.Data))
	if err != nil || convErr != nil || last < acknowledged {
		t.Fatalf("%s: head is %q, %d were acknowledged, error %v", name, head.Data, acknowledged, err)
	}
	n := 0
	for q := (store.RangeQuery{To: "~"}); ; {
		page, err := s.Table().Range(t.Context(), name, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			if n++; row.Key != logKey(n) || !bytes.Equal(row.Data, logData(n)) {
				t.Fatalf("%s: row %d is %q with %d bytes", name, n, row.Key, len(row.Data))
			}
			q.From = store.NextKey(row.Key)
		}
		if !page.More {
			break
		}
	}
	if n != last {
		t.Errorf("%s: %d rows, the head says %d", name, n, last)
	}
}

// holdOpen opens the directory, says so, and waits for its input to end.
func holdOpen(dir string) {
	if _, err := bolt.Open(dir, bolt.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("open")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

func TestSecondProcessIsRefusedQuickly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, bolt.Options{})
	start := time.Now()
	cmd, lines := child(t, "hold", dir)
	if !lines.Scan() || !strings.Contains(lines.Text(), bolt.ErrInUse.Error()) {
		t.Errorf("the second process says %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if _, err := bolt.Open(dir, bolt.Options{}); !errors.Is(err, bolt.ErrInUse) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a second store of this process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, bolt.Options{})
}

func TestReopenFindsEverythingAndNewETags(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, bolt.Options{})
	large := bytes.Repeat([]byte("large"), 100_000)
	etags, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert("a", []byte("one")), store.Insert("b", nil)})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"small": []byte("x"), "large": large, "empty": nil} {
		if _, err := s.Blobs().Put(t.Context(), name, data, store.Create); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Delete("b", etags[1])}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir, bolt.Options{Verify: true})
	row, err := s.Table().Get(t.Context(), "p", "a")
	if err != nil || row.ETag != etags[0] || string(row.Data) != "one" {
		t.Errorf("row is %q %q, error %v", row.ETag, row.Data, err)
	}
	if data, _, err := s.Blobs().Get(t.Context(), "large"); err != nil || !bytes.Equal(data, large) {
		t.Errorf("large blob has %d bytes, error %v", len(data), err)
	}
	if data, _, err := s.Blobs().Get(t.Context(), "empty"); err != nil || len(data) != 0 {
		t.Errorf("empty blob has %d bytes, error %v", len(data), err)
	}
	again, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert("b", nil), store.Replace("a", nil, etags[0])})
	if err != nil || again[0] <= etags[1] || again[1] <= etags[1] {
		t.Errorf("ETags are %q, before there were %q, error %v", again, etags, err)
	}
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	s := open(t, t.TempDir(), bolt.Options{NoSync: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, getErr := s.Table().Get(t.Context(), "p", "a")
	_, rangeErr := s.Table().Range(t.Context(), "p", store.RangeQuery{})
	_, applyErr := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert("a", nil)})
	_, putErr := s.Blobs().Put(t.Context(), "b", nil, store.Always)
	_, listErr := s.Blobs().List(t.Context(), "", "")
	for i, err := range []error{getErr, rangeErr, applyErr, putErr, listErr, s.Blobs().Delete(t.Context(), "b")} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestOrphanedFilesAreRemovedOnOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, bolt.Options{NoSync: true})
	large := make([]byte, 100_000)
	for _, name := range []string{"keep", "replace", "delete"} {
		if _, err := s.Blobs().Put(t.Context(), name, large, store.Create); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Blobs().Put(t.Context(), "replace", large, store.Always); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blobs().Put(t.Context(), "keep", large, store.Create); !errors.Is(err, store.ErrExists) {
		t.Fatal(err)
	}
	if err := s.Blobs().Delete(t.Context(), "delete"); err != nil {
		t.Fatal(err)
	}
	if got := blobFiles(t, dir); len(got) != 2 {
		t.Errorf("%d files for 2 large blobs", len(got))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{strings.Repeat("0a", 16), "README"} {
		if err := os.WriteFile(filepath.Join(dir, "blobs", name), large, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, bolt.Options{Verify: true})
	if got := blobFiles(t, dir); len(got) != 3 {
		t.Errorf("files are %q, want those of 2 blobs and the one that is not ours", got)
	}
	for _, name := range []string{"keep", "replace"} {
		if data, _, err := s.Blobs().Get(t.Context(), name); err != nil || len(data) != len(large) {
			t.Errorf("%s: %d bytes, error %v", name, len(data), err)
		}
	}
}

func blobFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestForeignDatabaseIsRefused covers other programs and other formats.
func TestForeignDatabaseIsRefused(t *testing.T) {
	for name, edit := range map[string]func(tx *bbolt.Tx) error{
		"other format": func(tx *bbolt.Tx) error { return tx.Bucket([]byte("lattice")).Put([]byte("format"), []byte("2")) },
		"no format":    func(tx *bbolt.Tx) error { return tx.Bucket([]byte("lattice")).Delete([]byte("format")) },
		"no marker":    func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("lattice")) },
		"no rows":      func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("rows")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := open(t, dir, bolt.Options{NoSync: true}).Close(); err != nil {
				t.Fatal(err)
			}
			editDatabase(t, dir, edit)
			_, err := bolt.Open(dir, bolt.Options{})
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v", err)
			}
			if want := name != "no rows"; errors.Is(err, bolt.ErrFormat) != want {
				t.Errorf("%v is ErrFormat: %v", err, !want)
			}
		})
	}
}

// editDatabase changes a closed database behind the provider's back.
func editDatabase(t *testing.T, dir string, edit func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "lattice.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(edit), db.Close()); err != nil {
		t.Fatal(err)
	}
}
