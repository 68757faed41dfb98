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

// needPrograms finds the programs that the chosen peers and scenarios need. It installs missing
// programs from Debian, if the options allow that.
func needPrograms(ctx context.Context, o *options, w io.Writer) error {
	packages := map[string]string{"nginx": "nginx", "wrk": "wrk"} // nginx is also the service behind the proxies
	for _, name := range o.peers {
		if name != keygateName {
			packages[name] = name
		}
	}
	if slices.ContainsFunc(o.scenarios, func(name string) bool { return strings.HasPrefix(name, "h2") }) {
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
		return fmt.Errorf("install the equivalent of these Debian packages and try again: %s", strings.Join(missing, ", "))
	}
	fmt.Fprintf(w, "installing %s; Debian may start them as services, which would distort the figures: stop them with systemctl disable --now\n", strings.Join(missing, ", "))
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update", "-q"}, install} {
		args = append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get"}, args...)
		if os.Getuid() != 0 {
			args = append([]string{"sudo"}, args...)
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the packages are listed above
		c.Stdout, c.Stderr = w, w
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// find returns the path of a program. It also searches the directories for system
// administration, which may not be in PATH.
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

// tool runs a program and returns its output.
func tool(ctx context.Context, program string, args ...string) (string, error) {
	path, err := find(program)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput() //nolint:gosec // the programs are named in this package
	if err != nil {
		return "", fmt.Errorf("%s: %w; its output:\n%s", program, err, out)
	}
	return string(out), nil
}
