package cli

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestExportOfASnapshotIsOfOneMoment changes the tree between the pages.
func TestExportOfASnapshotIsOfOneMoment(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(2500), "import", "t")
	before := l.ok("", "scan", "t")
	pages := 0
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/next") {
			if pages++; pages == 2 {
				empty(t, l.url+"/v1/trees/t/entries?start=k002000")
			}
		}
		return false
	}
	path := filepath.Join(t.TempDir(), "t.ndjson.gz")
	if out := l.ok("", "export", "t", path, "--snapshot", "--progress", "none"); !strings.HasPrefix(out, "Exported 2,500 entries") {
		t.Fatal(out)
	}
	if pages < 3 {
		t.Fatalf("%d pages: nothing was changed between them", pages)
	}
	s.Intercept = nil
	l.ok("", "load", "back", path, "--progress", "none")
	l.is(l.ok("", "scan", "back"), before)
	if l.ok("", "scan", "t") == before {
		t.Error("the tree did not change")
	}
	if n := s.Cursors("t"); n != 0 {
		t.Errorf("%d snapshots stay open", n)
	}
	l.fails(ExitNo, "tree_not_found", "", "export", "none", path, "--snapshot")
	l.is(l.ok("", "export", "t", "--snapshot", "--prefix", "k00000", "--as", "text", "--format", "csv"), l.ok("", "export", "t", "--prefix", "k00000", "--as", "text", "--format", "csv"))
}

// empty deletes a range as somebody else would.
func empty(t *testing.T, url string) {
	req, err := http.NewRequest(http.MethodDelete, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Error(resp, err)
	}
}

// TestExportOfASnapshotThatBreaksOffSavesNothing, and leaves no snapshot open.
func TestExportOfASnapshotThatBreaksOffSavesNothing(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(2500), "import", "t")
	pages := 0
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/next") {
			pages++
		}
		if pages < 2 || !strings.HasSuffix(r.URL.Path, "/next") {
			return false
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"status":410,"code":"snapshot_expired","detail":"gone"}`)
		return true
	}
	dir := t.TempDir()
	l.fails(ExitNo, "nothing was saved", "", "export", "t", filepath.Join(dir, "t.ndjson"), "--snapshot", "--progress", "none")
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
	if n := s.Cursors("t"); n != 0 {
		t.Errorf("%d snapshots stay open", n)
	}
}

func TestExportInterruptedSaysWhatThereIs(t *testing.T) {
	l, s := fake(t)
	l.ok(ndjson(5), "import", "t")
	for file, says := range map[string]string{
		filepath.Join(t.TempDir(), "t.ndjson"): "interrupted: nothing was saved; the command may be repeated",
		"-":                                    "interrupted: the output is not complete; the command may be repeated",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			cancel(ErrInterrupted)
			<-r.Context().Done() // an answer would race with the interruption
			return true
		}
		l.ctx = ctx
		l.fails(ExitInterrupted, says, "", "export", "t", file, "--progress", "none")
	}
}

func TestExportToAMissingFolderNamesTheFolder(t *testing.T) {
	l, _ := fake(t)
	l.ok(ndjson(1), "import", "t")
	folder := filepath.Join(t.TempDir(), "none")
	r := l.fails(ExitFailed, "the folder "+folder+" does not exist", "", "export", "t", filepath.Join(folder, "t.ndjson"))
	if strings.Contains(r.err, ".tmp") {
		t.Error(r.err)
	}
}
