//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// needPrograms finds the programs that the chosen peers and scenarios need, and
// installs what is missing from Debian.
func needPrograms(ctx context.Context, o *options, w io.Writer) error {
	packages := map[string]string{"nginx": "nginx", "wrk": "wrk"} // nginx is the service behind them, too
	for _, name := range o.peers {
		if name != keygateName {
			packages[name] = name
		}
	}
	if slices.Contains(o.scenarios, "h2") {
		packages["h2load"] = "nghttp2-client"
	}
	var missing []string
	for program, pkg := range packages {
		if _, err := find(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	if !o.install {
		return fmt.Errorf("these packages are missing: %s", strings.Join(missing, ", "))
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install what stands in for Debian's %s, then try again", strings.Join(missing, ", "))
	}
	fmt.Fprintf(w, "installing %s; Debian may start them as services, which would disturb: systemctl disable --now ends that\n", strings.Join(missing, ", "))
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update", "-q"}, install} {
		args = append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get"}, args...)
		if os.Getuid() != 0 {
			args = append([]string{"sudo"}, args...)
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the packages stand above
		c.Stdout, c.Stderr = w, w
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// find returns the path of a program, also where Debian keeps what only
// administrators run.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path, nil
		}
	}
	return "", err
}

// tool runs a program to its end and returns what it wrote.
func tool(ctx context.Context, program string, args ...string) (string, error) {
	path, err := find(program)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput() //nolint:gosec // the programs stand in this package
	if err != nil {
		return "", fmt.Errorf("%s: %w; it wrote:\n%s", program, err, out)
	}
	return string(out), nil
}
