package service

import (
	"errors"
	"net"
	"testing"
)

func TestConnectionsOverTheLimitWait(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(inner, 2)
	accepted, ended := make(chan net.Conn), make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Fatal("a third connection beside two")
	default:
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// Closing twice gives one place back.
	_ = first.Close()
	third := <-accepted
	if n := len(l.(*limitedListener).places); n != 2 {
		t.Errorf("%d places are taken by two connections", n)
	}
	// A listener that is full ends as well.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
	if second.Close() != nil || third.Close() != nil || len(l.(*limitedListener).places) != 0 {
		t.Error("places are taken by nobody")
	}
}
