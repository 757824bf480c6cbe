package capture

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStreamIsReadWhileItIsMade(t *testing.T) {
	release := make(chan struct{})
	s := Serve(100, func(w http.ResponseWriter) error {
		w.Header().Set("A", "before")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("A", "after")
		_, _ = io.WriteString(w, "one\x00\xff")
		<-release
		_, _ = w.Write(nil)
		_, _ = io.WriteString(w, "two")
		return nil
	})
	<-s.Begun()
	if s.Status() != http.StatusCreated || s.Sent().Get("A") != "before" || s.Err() != nil {
		t.Fatalf("status %d, header %v, error %v", s.Status(), s.Sent(), s.Err())
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(s, first); err != nil || string(first) != "one\x00\xff" {
		t.Fatalf("read %q, %v while the handler is at work", first, err)
	}
	close(release)
	rest, err := io.ReadAll(s)
	if err != nil || string(rest) != "two" {
		t.Fatalf("read %q, %v", rest, err)
	}
	<-s.Ended()
}

func TestSilentStreamAnswers200(t *testing.T) {
	s := Serve(1, func(http.ResponseWriter) error { return nil })
	<-s.Begun()
	body, err := io.ReadAll(s)
	if s.Status() != http.StatusOK || len(body) != 0 || err != nil {
		t.Fatalf("status %d, body %q, %v", s.Status(), body, err)
	}
}

func TestFailureBeforeTheHeaderIsNoAnswer(t *testing.T) {
	boom := errors.New("boom")
	s := Serve(1, func(http.ResponseWriter) error { return boom })
	<-s.Begun()
	if !errors.Is(s.Err(), boom) || s.Status() != 0 {
		t.Fatalf("status %d, error %v", s.Status(), s.Err())
	}
}

func TestFailureAfterTheHeaderBreaksTheBody(t *testing.T) {
	boom := errors.New("boom")
	s := Serve(10, func(w http.ResponseWriter) error {
		_, _ = io.WriteString(w, "half")
		return boom
	})
	<-s.Begun()
	body, err := io.ReadAll(s)
	if string(body) != "half" || !errors.Is(err, boom) || s.Err() != nil {
		t.Fatalf("read %q, %v", body, err)
	}
}

func TestHandlerWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := 0
		s := Serve(1<<30, func(w http.ResponseWriter) error {
			for range 8 {
				n, err := w.Write(make([]byte, 1<<10))
				if written += n; err != nil {
					return err
				}
			}
			return nil
		})
		for round := range 8 {
			synctest.Wait()
			if written != round<<10 {
				t.Fatalf("%d bytes written when %d were read", written, round<<10)
			}
			if _, err := io.ReadFull(s, make([]byte, 1<<10)); err != nil {
				t.Fatal(err)
			}
		}
		<-s.Ended()
	})
}

func TestWriterLearnsThatTheReaderIsGone(t *testing.T) {
	failed := make(chan error, 1)
	s := Serve(10, func(w http.ResponseWriter) error {
		_, err := io.WriteString(w, "x")
		failed <- err
		return nil
	})
	s.Abandon()
	if err := <-failed; !errors.Is(err, ErrReaderGone) {
		t.Fatalf("the write failed with %v", err)
	}
	<-s.Ended()
}

func TestBrokenStreamFailsOnBothSides(t *testing.T) {
	late := errors.New("late")
	failed := make(chan error, 1)
	s := Serve(10, func(w http.ResponseWriter) error {
		w.WriteHeader(http.StatusOK)
		_, err := io.WriteString(w, "x")
		failed <- err
		return nil
	})
	<-s.Begun()
	s.Break(late)
	if _, err := io.ReadAll(s); !errors.Is(err, late) {
		t.Errorf("the reader got %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the write succeeded")
	}
	<-s.Ended()
}

func TestStreamBeyondTheLimitHasNoHole(t *testing.T) {
	var results []error
	s := Serve(4, func(w http.ResponseWriter) error {
		for _, part := range []string{"abc", "de", "f"} {
			_, err := io.WriteString(w, part)
			results = append(results, err)
		}
		return ErrTooLarge
	})
	<-s.Begun()
	body, err := io.ReadAll(s)
	if string(body) != "abc" || !errors.Is(err, ErrTooLarge) {
		t.Fatalf("read %q, %v", body, err)
	}
	<-s.Ended()
	if results[0] != nil || !errors.Is(results[1], ErrTooLarge) || !errors.Is(results[2], ErrTooLarge) {
		t.Fatalf("writes gave %v", results)
	}
}

func TestWriteDeadlineEndsAStalledStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second error
		s := Serve(1<<20, func(w http.ResponseWriter) error {
			control := http.NewResponseController(w)
			if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			_, first = io.WriteString(w, "a")
			_ = control.SetWriteDeadline(time.Time{})
			time.Sleep(time.Hour)
			_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
			_, second = io.Copy(w, strings.NewReader("b"))
			return nil
		})
		<-s.Begun()
		var got bytes.Buffer
		if _, err := io.CopyN(&got, s, 1); err != nil || got.String() != "a" {
			t.Fatalf("read %q, %v", got.String(), err)
		}
		<-s.Ended()
		if first != nil || second == nil {
			t.Fatalf("writes gave %v and %v; the second had no reader", first, second)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a late reader got %v", err)
		}
	})
}
