package azurite

import (
	"strings"
	"testing"
)

func TestAddressesAreFoundInWhatIsPrinted(t *testing.T) {
	o := newOutput()
	for _, chunk := range []string{
		"Azurite Blob service is starting at http://127.0.0.1:0\nAzurite Blob service is success",
		"fully listening at http://127.0.0.1:4",
	} {
		if _, err := o.Write([]byte(chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if got := o.address("Blob"); got != "" {
		t.Errorf("blob at %q, which is half an address", got)
	}
	if got := o.address("Table"); got != "" {
		t.Errorf("table at %q before it said so", got)
	}
	if _, err := o.Write([]byte("1381\r\nAzurite Table service is successfully listening at http://127.0.0.1:45251\n")); err != nil {
		t.Fatal(err)
	}
	if got := o.address("Blob"); got != "http://127.0.0.1:41381" {
		t.Errorf("blob at %q", got)
	}
	if got := o.address("Table"); got != "http://127.0.0.1:45251" {
		t.Errorf("table at %q", got)
	}
}

func TestOutputIsBounded(t *testing.T) {
	o := newOutput()
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 100 {
		if n, err := o.Write(line); n != len(line) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if o.buf.Len() > maxOutput {
		t.Fatalf("kept %d bytes", o.buf.Len())
	}
	if got := len(o.tail()); got > 5*1003 {
		t.Fatalf("the tail has %d bytes", got)
	}
}
