package capture

import (
	"errors"
	"net/http"
	"testing"
)

func TestSilentHandlerAnswers200(t *testing.T) {
	r := New(8)
	r.Header().Set("A", "1")
	if r.Started() || r.Status() != http.StatusOK || len(r.Body()) != 0 || r.Sent().Get("A") != "1" {
		t.Fatalf("started %v, status %d, body %q, header %v", r.Started(), r.Status(), r.Body(), r.Sent())
	}
}

func TestFirstFinalStatusCounts(t *testing.T) {
	r := New(8)
	r.WriteHeader(http.StatusEarlyHints)
	if r.Started() {
		t.Fatal("an informational status counted as the answer")
	}
	r.WriteHeader(http.StatusCreated)
	r.WriteHeader(http.StatusTeapot)
	if r.Status() != http.StatusCreated {
		t.Fatalf("status %d, want 201", r.Status())
	}
}

func TestHeaderIsFixedWhenWritten(t *testing.T) {
	r := New(8)
	r.Header().Set("A", "before")
	r.Flush()
	r.Header().Set("A", "after")
	if got := r.Sent().Get("A"); got != "before" {
		t.Fatalf("header %q, want the one of the moment it was sent", got)
	}
}

func TestBodyIsKeptUpToTheBound(t *testing.T) {
	r := New(4)
	if n, err := r.Write([]byte("abcd")); n != 4 || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if r.Overflowed() || string(r.Body()) != "abcd" {
		t.Fatalf("overflowed %v, body %q", r.Overflowed(), r.Body())
	}
	if _, err := r.Write([]byte("e")); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
	if !r.Overflowed() || string(r.Body()) != "abcd" {
		t.Fatalf("overflowed %v, body %q", r.Overflowed(), r.Body())
	}
}

func TestNothingIsKeptAfterAnOverflow(t *testing.T) {
	r := New(4)
	_, first := r.Write([]byte("abcde"))
	_, second := r.Write([]byte("f"))
	if !errors.Is(first, ErrTooLarge) || !errors.Is(second, ErrTooLarge) || len(r.Body()) != 0 {
		t.Fatalf("got %v and %v with body %q, want a hole to be impossible", first, second, r.Body())
	}
}
