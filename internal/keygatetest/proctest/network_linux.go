package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
)

// AloneOnNetwork does the same as Alone, in a network of its own that has nothing but loopback, with all ports free: nothing that the
// test starts reaches another machine, whatever it tries. hosts are the addresses of names there. Where the system does not allow
// that, the test ends as needtest.Missing says.
func AloneOnNetwork(t testing.TB, hosts map[string]string) bool {
	t.Helper()
	if IsAlone(t) {
		enterNetwork(t, hosts)
		return true
	}
	cmd := aloneCommand(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN}
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		needtest.Missing(t, "a process cannot be started in a network of its own (%v): allow user namespaces", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the test in a network of its own: %v\n%s", err, out.String())
	}
	return false
}

// enterNetwork begins the use of the network that the process was started in.
func enterNetwork(t testing.TB, hosts map[string]string) {
	t.Helper()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must("open a socket", err)
	defer func() { _ = unix.Close(fd) }()
	up, err := unix.NewIfreq("lo")
	must("name the interface", err)
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	must("start the interface", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up))

	var table strings.Builder
	table.WriteString("127.0.0.1 localhost\n")
	for name, addr := range hosts {
		fmt.Fprintf(&table, "%s %s\n", addr, name)
	}
	must("keep mounts to this process", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for name, text := range map[string]string{"hosts": table.String(), "resolv.conf": "nameserver 127.0.0.1\n"} {
		file := filepath.Join(t.TempDir(), name)
		must("write "+name, os.WriteFile(file, []byte(text), 0o600))
		must("readable", os.Chmod(file, 0o644))
		must("mount "+name, unix.Mount(file, "/etc/"+name, "", unix.MS_BIND, ""))
	}
}
