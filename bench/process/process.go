//go:build linux

// Package process starts the programs that a benchmark runs, measures their
// processor time and memory over all of their processes, and ends them. It
// reads /proc, so it is for Linux alone.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Config is what is started.
type Config struct {
	Path string   // of the program
	Args []string // without the program's name
	Env  []string // added to this process's own
	Dir  string   // a directory for the output's file, kept by the caller
}

// Process is a program that runs.
type Process struct {
	cmd    *exec.Cmd
	output string
	ended  chan struct{}
	err    error // after ended
}

// Start starts a program. Its output goes to a file, which the error of Failure
// quotes. ctx does not end it: Stop does.
func Start(cfg Config) (*Process, error) {
	out, err := os.CreateTemp(cfg.Dir, filepath.Base(cfg.Path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own
	p := &Process{
		cmd:    exec.Command(cfg.Path, cfg.Args...), //nolint:gosec,noctx // a benchmark runs what its flags name, and ends it by Stop
		output: out.Name(),
		ended:  make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = cfg.Dir
	p.cmd.Env = append(os.Environ(), cfg.Env...)
	// Should this process be killed, its children go, too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// ID returns the identifier of the program's first process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Stop asks the program to end, waits up to ten seconds for it, and then ends
// it and what it started by force.
func (p *Process) Stop() {
	tree, err := p.tree()
	if err != nil {
		tree = []int{p.ID()}
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		for _, id := range tree {
			_ = syscall.Kill(id, syscall.SIGKILL) // it may have ended
		}
		<-p.ended
	}
}

// Await calls ready about every millisecond until it returns nil. It fails if
// the program ends before, or ctx does.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready: %w%s", p.cmd.Path, errors.Join(p.err, err), p.quote())
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready: %w%s", p.cmd.Path, err, p.quote())
		case <-tick.C:
		}
	}
}

// quote returns the end of what the program wrote.
func (p *Process) quote() string {
	const most = 2048
	b, err := os.ReadFile(p.output)
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; it wrote:\n" + string(b[max(0, len(b)-most):])
}
