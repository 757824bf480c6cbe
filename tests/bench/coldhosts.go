package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/providers/subprocess"
	"github.com/latticekv/lattice/tests/runtimeapi"
)

// startHandler starts the custom handler, waits until it accepts connections, and
// asks it as the Functions host would.
func startHandler(ctx context.Context, program string, account *coldAccount) (c cold, err error) {
	address, err := freeAddress()
	if err != nil {
		return c, err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(program)
	cmd.Env = append(account.env, "FUNCTIONS_CUSTOMHANDLER_PORT="+port)
	begun := time.Now()
	end, err := launchCold(cmd)
	if err != nil {
		return c, err
	}
	defer end()
	limit, again := time.After(startLimit), time.NewTicker(200*time.Microsecond)
	defer again.Stop()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			c.ready = time.Since(begun)
			conn.Close()
			break
		}
		select {
		case <-again.C:
		case <-limit:
			return c, fmt.Errorf("the handler does not listen: %w", err)
		}
	}
	if err := fetch(ctx, "http://"+address+"/healthz"); err != nil {
		return c, err
	}
	c.healthy = time.Since(begun)
	if err := fetch(ctx, "http://"+address+"/v1/trees/bench/keys/"+account.key); err != nil {
		return c, err
	}
	c.answered = time.Since(begun)
	return c, nil
}

// startFunction starts the Lambda function, waits until it asks for its first
// event, and gives it a get.
func startFunction(ctx context.Context, program string, account *coldAccount) (c cold, err error) {
	api, err := runtimeapi.Open()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	cmd := exec.Command(program)
	cmd.Env = append(account.env, api.Environment()...)
	begun := time.Now()
	end, err := launchCold(cmd)
	if err != nil {
		return c, err
	}
	defer end()
	select {
	case <-api.Asked():
		c.ready = time.Since(begun)
	case <-time.After(startLimit):
		return c, errors.New("the function does not ask for an event")
	}
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/v1/trees/bench/keys/" + account.key}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = http.MethodGet, e.RawPath
	event, err := json.Marshal(e)
	if err != nil {
		return c, err
	}
	answer, err := api.Invoke(ctx, event)
	c.answered = time.Since(begun)
	if err == nil && !strings.Contains(string(answer), `"statusCode":200`) {
		err = fmt.Errorf("the function answered %.200s", answer)
	}
	return c, err
}

// launchCold starts a program and returns what ends it.
func launchCold(cmd *exec.Cmd) (end func(), err error) {
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	exited, err := subprocess.Start(cmd, false)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-exited
	}, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// fetch demands an answer, and all of it.
func fetch(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %d", url, resp.StatusCode)
	}
	return nil
}
