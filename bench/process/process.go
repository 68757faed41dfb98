//go:build linux

// Package process starts and stops the programs that a benchmark runs, and measures the
// CPU time and memory of all of their processes. It reads /proc, so it works on Linux
// only.
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

// Config describes a program to start.
type Config struct {
	Path string   // path of the program
	Args []string // without the program's name
	Env  []string // added to this process's environment
	Dir  string   // working directory, also for the output file; the caller removes it
}

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	output string
	ended  chan struct{}
	err    error // from Wait; valid when ended is closed
}

// Start starts a program. Its output goes to a file, the end of which is quoted in the
// errors of Await. The caller must call Stop.
func Start(cfg Config) (*Process, error) {
	out, err := os.CreateTemp(cfg.Dir, filepath.Base(cfg.Path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	p := &Process{
		cmd:    exec.Command(cfg.Path, cfg.Args...), //nolint:gosec,noctx // a benchmark runs the programs that its flags name; Stop ends them
		output: out.Name(),
		ended:  make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = cfg.Dir
	p.cmd.Env = append(os.Environ(), cfg.Env...)
	// If this process is killed, the kernel also stops its children.
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

// Stop sends the program SIGTERM and waits for it to exit. After ten seconds it kills
// the program and all of its processes.
func (p *Process) Stop() {
	tree, err := p.IDs()
	if err != nil {
		tree = []int{p.ID()}
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have exited already
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		for _, id := range tree {
			_ = syscall.Kill(id, syscall.SIGKILL) // it may have exited already
		}
		<-p.ended
	}
}

// Kill sends the program's first process SIGKILL and waits for its end, after which the kernel has closed its
// connections. For programs without children.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have exited already
	<-p.ended
}

// Await calls ready about every millisecond until it returns nil. It fails if the
// program exits or ctx ends before.
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
			return fmt.Errorf("%s exited before it was ready: %w%s", p.cmd.Path, errors.Join(p.err, err), p.quote())
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w%s", p.cmd.Path, err, p.quote())
		case <-tick.C:
		}
	}
}

// quote returns the end of the program's output.
func (p *Process) quote() string {
	const most = 2048
	b, err := os.ReadFile(p.output)
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; its output:\n" + string(b[max(0, len(b)-most):])
}
