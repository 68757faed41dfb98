package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/memlimit"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
)

const (
	// leastSpace is the free space, in bytes, below which a server may soon no longer accept changes.
	leastSpace = 100 << 20
	// expirySoon is how long before the end of a certificate Examine warns.
	expirySoon = 14 * 24 * time.Hour
	// clockSlack is how far clocks may be apart without a warning.
	clockSlack = time.Minute
)

// oldestNow is a time before this version was made.
func oldestNow() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// examineDataDir checks the data directory and the disk it is on. It returns the server that has locked it,
// such as " (process 71)", and whether there is one.
func (f *findings) examineDataDir(_ context.Context, settings *config.Config) (running bool) {
	const check = "data directory"
	dir := settings.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := existingParent(dir)
		if err := mayWrite(parent); err != nil {
			f.problem(check, "create "+dir+" for the user of the server, or set another --data-dir", "%s does not exist, and cannot be created in %s: %v", dir, parent, err)
			return false
		}
		f.ok(check, "%s does not exist yet; the first start creates it", dir)
		f.examineSpace(settings, parent)
		return false
	case err != nil:
		f.problem(check, "give the user of the server access to it, or set another --data-dir", "%v", err)
		return false
	case !info.IsDir():
		f.problem(check, "set another --data-dir", "%s is not a directory", dir)
		return false
	}
	switch mode := info.Mode().Perm(); {
	case mayWrite(dir) != nil:
		f.problem(check, "run chown and chmod 700 for the user of the server; mount its file system for writing", "this user may not write to %s: %v", dir, mayWrite(dir))
	case othersMayWrite(info):
		f.warn(check, "run chmod 700 "+dir, "other users may write to %s (mode %04o)", dir, mode)
	default:
		f.ok(check, "%s is writable (mode %04o)", dir, mode)
	}
	f.examineSpace(settings, dir)
	holder, running, err := lockHolder(settings.LockFile())
	switch {
	case err != nil:
		f.problem("lock", "give the user of the server access to the file", "%v", err)
	case running:
		f.ok("lock", "a server%s is running on this directory", holder)
	default:
		f.ok("lock", "no server is running on this directory")
	}
	return running
}

// existingParent returns the nearest directory above path that exists.
func existingParent(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "."
	}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// lockHolder reports whether a server has locked the file at path, and its process in the words of
// takeLock's message. It creates no file.
func lockHolder(path string) (holder string, locked bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer func() { _ = file.Close() }() // releases the lock, too
	err = tryLock(file)
	if errors.Is(err, errLocked) {
		return readHolder(file), true, nil
	}
	return "", false, err
}

// examineSpace checks the free space of the file system of dir.
func (f *findings) examineSpace(settings *config.Config, dir string) {
	const check = "disk"
	free, err := freeSpace(dir)
	switch {
	case err != nil:
		f.warn(check, "look at it with df", "the free space of %s is unknown: %v", dir, err)
	case free < leastSpace:
		f.problem(check, "free some space", "%s has only %s free; a server whose disk is full accepts no changes", dir, sizeText(free))
	case !settings.Shared() && free < float64(settings.AuditMaxBytes)+float64(settings.RequestsMaxBytes):
		f.warn(check, "lower --audit-max-bytes or --requests-max-bytes, or give the data directory a larger disk",
			"%s has %s free; the audit log may take up to %s, and the request log up to %s", dir, sizeText(free), sizeText(float64(settings.AuditMaxBytes)), sizeText(float64(settings.RequestsMaxBytes)))
	default:
		f.ok(check, "%s has %s free", dir, sizeText(free))
	}
}

// sizeText returns a number of bytes as people read it.
func sizeText(bytes float64) string {
	for _, unit := range []string{"bytes", "kB", "MB", "GB"} {
		if bytes < 1000 {
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.1f TB", bytes)
}

// examineKeyFiles checks admin.key, and the secret key of an installation in the data directory. The
// secret key of several nodes is checked with their database.
func (f *findings) examineKeyFiles(settings *config.Config) {
	path := settings.AdminKeyFile()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		f.problem("admin.key", "give the user of the server access to it", "%v", err)
	default:
		if err := secret.CheckPrivate("admin key file", path, info); err != nil {
			f.problem("admin.key", "run chmod 600 "+path, "%v", err)
		} else {
			f.ok("admin.key", "%s is readable for its owner only", path)
		}
	}
	if settings.Shared() {
		return
	}
	const check = "secret key"
	const remedy = "restore it from a backup, or set --secret-key-file or " + config.SecretKeyVariable
	box, err := givenBox(settings)
	old, oldErr := hasDatabase(settings)
	switch {
	case errors.Is(err, fs.ErrNotExist) && oldErr == nil && !old:
		f.ok(check, "%s does not exist yet; the first start creates it", settings.SecretKeyFile)
	case errors.Is(err, fs.ErrNotExist):
		f.problem(check, remedy, "the secret key file %s does not exist, but the database %s was created with a secret key", settings.SecretKeyFile, settings.DatabaseFile())
	case err != nil:
		f.problem(check, remedy, "%v", err)
	default:
		f.ok(check, "it is there, and readable for its owner only")
		if found, err := exists(settings.FingerprintFile()); err == nil && found {
			if err := checkFingerprint(settings, box, settings.SecretKey != ""); err != nil {
				f.problem(check, remedy, "%v", err)
			}
		}
	}
}

// givenBox returns the box for the key in the environment or in the file. It creates no key.
func givenBox(settings *config.Config) (*secret.Box, error) {
	if settings.SecretKey != "" {
		return secret.Given([]byte(settings.SecretKey), settings.SecretKeyFile)
	}
	return secret.Load(settings.SecretKeyFile)
}

// examineDatabaseFile checks the SQLite database.
func (f *findings) examineDatabaseFile(ctx context.Context, settings *config.Config) {
	const check = "database"
	path := settings.DatabaseFile()
	found, err := hasDatabase(settings)
	if err == nil && !found {
		for _, left := range []string{settings.AdminKeyFile(), settings.FingerprintFile()} {
			if there, err := exists(left); err == nil && there {
				if pending, err := exists(pendingFile(settings)); err == nil && !pending {
					f.problem(check, "mount its volume, or restore it with keygate restore", "%s is missing or empty, but %s exists, so this is not a first start", path, left)
					return
				}
			}
		}
		f.ok(check, "%s does not exist yet; the first start creates it", path)
		return
	}
	var schema sqlite.Schema
	if err == nil {
		schema, err = sqlite.Inspect(ctx, path)
	}
	switch {
	case err != nil:
		f.problem(check, "restore it with keygate restore, or set another --data-dir", "%v", err)
	case schema.Newer():
		f.problem(check, "run "+schema.Needed()+" or a newer one, or restore a backup from before the upgrade", "%s has schema %d, and this version supports %d", path, schema.Current, schema.Newest)
	case schema.Current < schema.Newest:
		f.ok(check, "%s has schema %d; the next start migrates it to %d, and older versions cannot start on it then", path, schema.Current, schema.Newest)
	default:
		f.ok(check, "%s has schema %d, the one of this version", path, schema.Current)
	}
}

// examineAddresses checks whether the addresses of the listeners are free.
func (f *findings) examineAddresses(ctx context.Context, settings *config.Config, running bool) {
	for _, one := range []struct {
		setting, addr string
		serves        bool
	}{
		{"gateway-addr", settings.GatewayAddr, settings.ServesGateway()},
		{"admin-addr", settings.AdminAddr, settings.ServesAdmin()},
		{"ops-addr", settings.OpsAddr, true},
		{"acme-http-addr", settings.ACME.HTTPAddr, settings.ServesGateway() && settings.ACME.HTTPAddr != ""},
	} {
		if !one.serves {
			continue
		}
		check := "--" + one.setting
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", one.addr)
		switch {
		case err == nil:
			_ = l.Close()
			f.ok(check, "%s is free", one.addr)
		case errors.Is(err, errAddressInUse) && running:
			f.ok(check, "%s is in use, while a server is running on the data directory", one.addr)
		case errors.Is(err, errAddressInUse):
			f.problem(check, fmt.Sprintf("stop what uses it, or set --%s %s", one.setting, freeAddress(ctx, one.addr, nil)), "%s is in use by another program", one.addr)
		default:
			f.problem(check, "set an address of this machine, and a port that the user of the server may use", "%v", err)
		}
	}
	if ip := net.ParseIP(hostOf(settings.AdminAddr)); settings.ServesAdmin() && len(settings.AdminTLS) == 0 && (ip == nil || !ip.IsLoopback()) && hostOf(settings.AdminAddr) != "localhost" {
		f.warn("--admin-addr", "set --admin-tls-cert and --admin-tls-key, or a loopback address", "the management API listens beyond loopback without TLS, so that keys cross the network unencrypted")
	}
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr) // config has checked it
	return host
}

// examineCertificates checks the certificates of both planes.
func (f *findings) examineCertificates(settings *config.Config) {
	for _, one := range []struct {
		check, certSetting, keySetting string
		files                          []config.TLSFiles
	}{
		{"TLS of the data plane", "tls-cert", "tls-key", settings.TLS},
		{"TLS of the management API", "admin-tls-cert", "admin-tls-key", settings.AdminTLS},
	} {
		if len(one.files) == 0 {
			continue
		}
		files := make([]certificate.Files, len(one.files))
		for i, file := range one.files {
			files[i] = certificate.Files(file)
			if info, err := os.Stat(file.Key); file.Key != "" && err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
				f.warn(one.check, "run chmod 600 "+file.Key, "every user of this machine may read the private key %s", file.Key)
			}
		}
		set, err := certificate.Open(certificate.Config{Files: files, CertSetting: one.certSetting, KeySetting: one.keySetting})
		if err != nil {
			f.problem(one.check, "correct the files that --"+one.certSetting+" and --"+one.keySetting+" name", "%v", err)
			continue
		}
		end := set.NotAfter()
		text := "the first certificate expires on " + end.UTC().Format(time.DateOnly)
		switch left := time.Until(end); {
		case left <= 0:
			f.problem(one.check, "renew it; a running server uses the new files within seconds", "a certificate has expired on %s", end.UTC().Format(time.DateOnly))
		case left < expirySoon:
			f.warn(one.check, "renew it; a running server uses the new files within seconds", "%s", text)
		default:
			f.ok(one.check, "certificates and keys match; %s", text)
		}
	}
}

// examineFiles checks the limit of open files, and the file of the access log.
func (f *findings) examineFiles(settings *config.Config) {
	const check = "open files"
	const remedy = "raise the limit with LimitNOFILE= in systemd, --ulimit nofile= in Docker, or ulimit -n; or lower --max-connections"
	files, limited := maxFiles()
	switch d, err := shareDescriptors(files, limited, settings.MaxConnections); {
	case err != nil:
		f.problem(check, remedy, "%v", err)
	case d.clients < settings.MaxConnections:
		f.warn(check, remedy, "a process of this user may open %d files, so that the server will accept %d connections at a time instead of %d", files, d.clients, settings.MaxConnections)
	case !limited:
		f.ok(check, "there is no limit")
	default:
		f.ok(check, "a process of this user may open %d files, enough for %d connections", files, settings.MaxConnections)
	}
	if path := settings.AccessLog; path != "off" && path != "stdout" {
		dir := filepath.Dir(path)
		if err := mayWrite(dir); err != nil {
			f.problem("--access-log", "create the directory for the user of the server, or set another file", "this user may not write to %s: %v", dir, err)
		} else {
			f.ok("--access-log", "%s can be written", path)
		}
	}
}

// memoryLimit returns the memory limit of the Go runtime of this process, in bytes. set is false without GOMEMLIMIT, or if
// that is "off".
func memoryLimit() (limit int64, set bool) {
	limit = debug.SetMemoryLimit(-1)
	return limit, limit != math.MaxInt64
}

// examineMemoryLimit checks, in a container or unit with a memory limit, that the garbage collector works harder before
// the kernel ends the process. files is the root of the file system.
func (f *findings) examineMemoryLimit(files fs.FS, limit int64, set bool) {
	const check = "memory limit"
	most, limited := memlimit.Of(files)
	switch {
	case !limited:
	case !set:
		f.ok(check, "without GOMEMLIMIT, the server sets that of the Go runtime to %s, nine tenths of what its cgroup may use", sizeText(float64(most)))
	case limit > most:
		f.warn(check, "leave GOMEMLIMIT out, or lower it to nine tenths of what the cgroup may use",
			"GOMEMLIMIT is %s, but nine tenths of what the cgroup may use are %s: the kernel may end the process before the garbage collector works harder",
			sizeText(float64(limit)), sizeText(float64(most)))
	default:
		f.ok(check, "GOMEMLIMIT is %s, and nine tenths of what the cgroup may use are %s", sizeText(float64(limit)), sizeText(float64(most)))
	}
}

// examineClock checks that the clock of this machine is plausible. The clocks of the stores are compared
// with it where the stores are checked.
func (f *findings) examineClock(settings *config.Config) {
	const check, remedy = "clock", "let the machine synchronize its clock, with chrony or systemd-timesyncd"
	now := time.Now()
	if now.Before(oldestNow()) {
		f.problem(check, remedy, "the clock shows %s, which is in the past: keys would not expire", now.UTC().Format(time.DateTime))
		return
	}
	for _, path := range []string{settings.DatabaseFile() + "-wal", settings.DatabaseFile(), settings.AdminKeyFile()} {
		if info, err := os.Stat(path); err == nil && info.ModTime().Sub(now) > clockSlack {
			f.warn(check, remedy, "%s was written at %s, which is in the future: the clock was set back", path, info.ModTime().UTC().Format(time.DateTime))
			return
		}
	}
	f.ok(check, "it shows %s UTC", now.UTC().Format(time.DateTime))
}

// examineClocks compares the clock of a store with this machine's.
func (f *findings) examineClocks(check string, ahead time.Duration) {
	direction := "ahead of"
	if ahead < 0 {
		ahead, direction = -ahead, "behind"
	}
	if ahead > clockSlack {
		f.warn(check, "synchronize the clocks of both machines", "its clock is %s %s this machine's", ahead.Round(time.Second), direction)
		return
	}
	f.ok(check, "its clock is %s %s this machine's", strings.TrimSpace(ahead.Round(time.Millisecond).String()), direction)
}
