// Command llm runs Keygate in front of a stand-in of a language model, for two teams with budgets of tokens. It makes calls,
// shows what they cost, and writes bills until it is stopped.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const providerKey = "sk-of-the-provider" // only Keygate knows it; callers never see it

func main() {
	var x example
	flag.StringVar(&x.keygate, "keygate", "", "keygate `program`; built from this clone if empty")
	flag.StringVar(&x.gateways, "gateways", "examples/llm/gateways", "configuration `directory`")
	flag.BoolVar(&x.once, "once", false, "end after the calls and one round of billing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := x.run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

// example is one run. Keygate listens where it does by default, or where the environment says (KEYGATE_GATEWAY_ADDR,
// KEYGATE_ADMIN_ADDR, KEYGATE_OPS_ADDR).
type example struct {
	keygate, gateways string
	once              bool
	dir               string // everything that is written
	env               []string
}

// url returns the URL of the management API.
func (*example) url() string {
	return "http://" + cmp.Or(os.Getenv("KEYGATE_ADMIN_ADDR"), "127.0.0.1:8081")
}

func (x *example) run(ctx context.Context) (err error) {
	if x.gateways, err = filepath.Abs(x.gateways); err != nil {
		return err
	}
	if x.dir, err = os.MkdirTemp("", "keygate-llm-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(x.dir)) }()
	if x.keygate == "" {
		x.keygate = filepath.Join(x.dir, "keygate")
		build := exec.CommandContext(ctx, "go", "build", "-o", x.keygate, "github.com/keygate/keygate/cmd/keygate")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build keygate: %w\n%s", err, out)
		}
	} else if x.keygate, err = exec.LookPath(x.keygate); err != nil {
		return err
	} else if x.keygate, err = filepath.Abs(x.keygate); err != nil { // commands run in another directory
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	provider := http.Server{Handler: &model{key: providerKey, pause: 20 * time.Millisecond}, ReadHeaderTimeout: time.Minute}
	go provider.Serve(listener) //nolint:errcheck // until it is closed
	defer provider.Close()      //nolint:errcheck // nothing is lost
	x.env = append(os.Environ(), "MODEL_URL=http://"+listener.Addr().String(), "PROVIDER_KEY="+providerKey,
		"KEYGATE_URL="+x.url())

	serving, stopServer := context.WithCancelCause(ctx)
	defer stopServer(nil)
	ended, err := x.serve(serving, stopServer)
	if err != nil {
		return err
	}
	err = x.tour(serving)
	if cause := context.Cause(serving); cause != nil {
		err = cause // such as the end of the server
	}
	stopServer(nil)
	<-ended
	return err
}

// serve starts the server. It ends the context with a cause when the server has ended, and closes the channel.
func (x *example) serve(ctx context.Context, end context.CancelCauseFunc) (ended chan struct{}, err error) {
	var log bytes.Buffer
	server := exec.CommandContext(ctx, x.keygate, "serve")
	server.Dir, server.Env, server.Stderr = x.dir, x.env, &log
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.WaitDelay = 20 * time.Second
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		err := server.Wait()
		end(fmt.Errorf("the server has ended: %w\n%s", err, &log))
	}()
	return ended, nil
}

// tour makes the calls, and then bills.
func (x *example) tour(ctx context.Context) error {
	ready := "http://" + cmp.Or(os.Getenv("KEYGATE_OPS_ADDR"), "127.0.0.1:8082") + "/readyz"
	if err := until(ctx, func() (bool, error) { return answers(ctx, ready), nil }); err != nil {
		return err
	}
	var search, support string
	for _, step := range []struct {
		to   *string
		args []string
	}{
		{nil, []string{"config", "apply", x.gateways, "--yes"}},
		{nil, []string{"owners", "create", "search", "--name", "The search team", "--plan", "free"}},
		{nil, []string{"owners", "create", "support", "--name", "The support team", "--plan", "pro"}},
		{&search, []string{"keys", "create", "--name", "search", "--owner", "search", "--scope", "write", "--gateway", "model", "--jq", ".key"}},
		{&support, []string{"keys", "create", "--name", "support", "--owner", "support", "--scope", "write", "--gateway", "model", "--jq", ".key"}},
	} {
		out, err := x.command(ctx, step.args...)
		if err != nil {
			return err
		}
		if step.to != nil {
			*step.to = strings.TrimSpace(out)
		}
	}
	charged, err := x.calls(ctx, search, support)
	if err != nil {
		return err
	}
	// The call whose caller has gone ends a moment later.
	if err := until(ctx, func() (bool, error) {
		out, err := x.output(ctx, "explain", "--result", "charged", "--jq", "length")
		return strings.TrimSpace(out) == fmt.Sprint(charged), err
	}); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"explain", "--result", "charged"},
		{"usage", "--owner", "search"},
		{"usage", "--owner", "support"},
		{"usage", "list", "--state", "open", "--meter", "tokens"},
	} {
		if _, err := x.command(ctx, args...); err != nil {
			return err
		}
	}
	return x.bill(ctx)
}

// calls makes calls of both teams. It returns how many of them were charged.
func (x *example) calls(ctx context.Context, search, support string) (charged int, err error) {
	for status := http.StatusOK; status == http.StatusOK; {
		if status, err = x.call(ctx, "search", search, "small", streamed); err != nil {
			return 0, err
		}
		if status == http.StatusOK {
			charged++
		}
	}
	for _, c := range []struct{ model, way string }{{"small", whole}, {"large", streamed}, {"small", hungUp}} {
		if _, err := x.call(ctx, "support", support, c.model, c.way); err != nil {
			return 0, err
		}
		charged++
	}
	return charged, nil
}

// The ways in which a team calls.
const (
	whole    = "whole"
	streamed = "streamed"
	hungUp   = "streamed, hung up after the first word"
)

// call calls a model through the gateway, in a way.
func (x *example) call(ctx context.Context, team, key, model, way string) (status int, err error) {
	body := `{"model": "` + model + `", "messages": [{"role": "user", "content": "What is a gateway?"}]`
	if way != whole {
		body += `, "stream": true, "stream_options": {"include_usage": true}`
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	addr := cmp.Or(os.Getenv("KEYGATE_GATEWAY_ADDR"), "127.0.0.1:8080")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body+"}"))
	if err != nil {
		return 0, err
	}
	req.Host = "model.localhost"
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var read []byte
	if way == hungUp {
		_, err = bufio.NewReader(resp.Body).ReadString('\n')
	} else {
		read, err = io.ReadAll(resp.Body)
	}
	fmt.Printf("%s called the model %s, %s: %d\n", team, model, way, resp.StatusCode)
	if resp.StatusCode != http.StatusOK {
		fmt.Printf("%s\n", bytes.TrimSpace(read))
	}
	return resp.StatusCode, err
}

// bill writes bills until ctx ends, or once.
func (x *example) bill(ctx context.Context) error {
	b := &billing{dir: x.dir, export: func(ctx context.Context, cursorFile, file string) error {
		_, err := x.command(ctx, "usage", "export", "--meter", "tokens", "--cursor-file", cursorFile, "--file", file)
		return err
	}}
	for {
		if err := b.round(ctx); err != nil {
			return err
		}
		lines, err := b.invoices()
		if err != nil {
			return err
		}
		fmt.Printf("Bills for hours that are over: %s\n", cmp.Or(strings.Join(lines, "; "), "none yet"))
		if x.once {
			return nil
		}
		fmt.Printf("The next bills in 10 minutes. Ctrl-C ends the example. In another terminal, try:\n  cd %s && export KEYGATE_URL=%s\n  %s usage --owner search\n", x.dir, x.url(), x.keygate)
		select {
		case <-time.After(10 * time.Minute):
		case <-ctx.Done():
			return nil
		}
	}
}

// command runs a command of keygate, and prints it with its output.
func (x *example) command(ctx context.Context, args ...string) (string, error) {
	out, err := x.output(ctx, args...)
	fmt.Printf("$ keygate %s\n", commandLine(args))
	if args[0] != "keys" { // keys are secrets
		fmt.Println(out)
	}
	return out, err
}

// commandLine returns arguments as one would type them in a shell. None of them has a quote.
func commandLine(args []string) string {
	words := slices.Clone(args)
	for i, word := range words {
		if strings.Contains(word, " ") {
			words[i] = "'" + word + "'"
		}
	}
	return strings.Join(words, " ")
}

func (x *example) output(ctx context.Context, args ...string) (string, error) {
	var out, problems bytes.Buffer
	// The admin key of this server, and not another one that the environment or a context has for its address.
	c := exec.CommandContext(ctx, x.keygate, append(slices.Clone(args), "--api-key-file", "keygate-data/admin.key")...)
	c.Dir, c.Env, c.Stdout, c.Stderr = x.dir, x.env, &out, &problems
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("keygate %s: %w\n%s", strings.Join(args, " "), err, &problems)
	}
	return out.String(), nil
}

// until waits until a condition holds, for a minute at most.
func until(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waited too long: %w", ctx.Err())
		}
	}
}

// answers reports whether a GET request is answered with 200.
func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
