package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/keygate/keygate/client"
)

// The last place to look for a server and its key.
const (
	localURL = "http://127.0.0.1:8081"
	localKey = "keygate-data/admin.key"
)

// connect returns a client for the server that the command calls. If there is no key
// for that server, the error is a *noKeyError.
func (a *app) connect() (*client.Client, error) {
	access, err := a.access()
	if err != nil {
		return nil, err
	}
	return a.clientOf(access)
}

func (a *app) clientOf(access serverAccess) (*client.Client, error) {
	c, err := client.New(client.Config{
		URL: access.URL, Key: access.Key, Source: "cli", UserAgent: "keygate-cli/" + a.Version,
	})
	if err != nil {
		return nil, usagef("%s", err)
	}
	return c, nil
}

// access returns the server and its key (contract, section 8). A key is used only
// with the address of the same source, where flags and environment count as one
// source. Otherwise anyone who can set an address could collect keys.
func (a *app) access() (serverAccess, error) {
	address, err := a.givenURL()
	if err != nil {
		return serverAccess{}, err
	}
	key, err := a.givenKey()
	if err != nil {
		return serverAccess{}, err
	}
	if key != "" {
		if address == "" {
			address = localURL
		}
		return serverAccess{address, key}, nil
	}
	contexts, err := a.readContexts()
	if err != nil {
		var unsafe *unsafeError
		if errors.As(err, &unsafe) {
			return serverAccess{}, &noKeyError{unsafe.text}
		}
		return serverAccess{}, err
	}
	current, has := contexts.Contexts[contexts.Current]
	if has && (address == "" || sameOrigin(address, current.URL)) {
		if address == "" {
			address = current.URL
		}
		return serverAccess{address, current.Key}, nil
	}
	if address == "" {
		address = localURL
	}
	if !isLoopback(address) {
		return serverAccess{}, &noKeyError{fmt.Sprintf("there is no key for %s: give --api-key-file or set KEYGATE_API_KEY with the address, or run keygate login --url %s", address, address)}
	}
	key, err = readLocalKey(filepath.FromSlash(localKey))
	return serverAccess{address, key}, err
}

// givenURL returns the address from the flag, else from the environment, else "".
func (a *app) givenURL() (string, error) {
	address := a.url
	if address == "" {
		address, _ = a.Env("KEYGATE_URL")
	}
	if address == "" {
		return "", nil
	}
	if _, err := client.New(client.Config{URL: address}); err != nil {
		return "", usagef("%s", err)
	}
	return address, nil
}

// givenKey returns the key from the flag, else from the environment, else "".
func (a *app) givenKey() (string, error) {
	if a.keyFile == "" {
		key, _ := a.Env("KEYGATE_API_KEY")
		return strings.TrimSpace(key), nil
	}
	content, err := os.ReadFile(a.keyFile)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	key := strings.TrimSpace(string(content))
	if key == "" {
		return "", &noKeyError{a.keyFile + " is empty: it must hold an account-level key"}
	}
	return key, nil
}

// readLocalKey reads the key that the first start of a server wrote to its data
// directory.
func readLocalKey(path string) (string, error) {
	content, err := readPrivate(path)
	var unsafe *unsafeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &noKeyError{"there is no key to call the server with: give --api-key-file, set KEYGATE_API_KEY, run keygate login, or change to the directory of ./" + localKey}
	case errors.As(err, &unsafe):
		return "", &noKeyError{unsafe.text}
	case err != nil:
		return "", &noKeyError{fmt.Sprintf("cannot read ./%s: %v", localKey, err)}
	}
	key := strings.TrimSpace(string(content))
	if !strings.HasPrefix(key, "kga_") {
		return "", &noKeyError{"./" + localKey + " does not hold an account-level key"}
	}
	return key, nil
}

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(x, y string) bool {
	ox, okx := origin(x)
	oy, oky := origin(y)
	return okx && oky && ox == oy
}

func origin(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port), true
}

// isLoopback reports whether the host of a URL is a loopback IP address or the name
// localhost.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
