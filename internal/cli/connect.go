package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/document"
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
	return a.clientOf(access.serverAccess)
}

// connection is the server that a command calls, and where its address and key come from.
type connection struct {
	serverAccess
	source  string // of the key, for whoami
	context string // "" if the key comes from elsewhere
}

func (a *app) clientOf(access serverAccess) (*client.Client, error) {
	var warned sync.Once
	transport, err := trusting(cmp.Or(a.givenCAFile(), access.CAFile))
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		HTTPClient: &http.Client{Transport: &waiting{a, transport}}, URL: access.URL, Key: access.Key, Source: "cli", UserAgent: "keygate-cli/" + a.version,
		Incomplete: func(reason string) {
			warned.Do(func() { fmt.Fprintf(a.Err, "warning: the output is incomplete: %s\n", reason) })
		},
	})
	if err != nil {
		return nil, usagef("%s", err)
	}
	return c, nil
}

// access returns the server and its key (contract, section 8). A key is used only
// with the address of the same source, where flags and environment count as one
// source. Otherwise anyone who can set an address could collect keys.
func (a *app) access() (connection, error) {
	if a.context != "" {
		if a.url != "" || a.keyFile != "" {
			return connection{}, usagef("--context has an address and a key: give it or --url and --api-key-file, not both")
		}
		return a.currentContext("")
	}
	address, err := a.givenURL()
	if err != nil {
		return connection{}, err
	}
	key, err := a.givenKey()
	if err != nil {
		return connection{}, err
	}
	if key != "" {
		source := "the environment variable KEYGATE_API_KEY"
		if a.keyFile != "" {
			source = "the file " + a.keyFile
		}
		return connection{serverAccess{URL: cmp.Or(address, localURL), Key: key}, source, ""}, nil
	}
	current, err := a.currentContext(address)
	if err != nil || current.Key != "" {
		return current, err
	}
	address = cmp.Or(address, localURL)
	if !isLoopback(address) {
		return connection{}, &noKeyError{fmt.Sprintf("there is no key for %s: give --api-key-file or set KEYGATE_API_KEY with the address, or run keygate login --url %s", address, address)}
	}
	key, err = readLocalKey(filepath.FromSlash(localKey))
	return connection{serverAccess{URL: address, Key: key}, "the file ./" + localKey, ""}, err
}

// currentContext returns the context of --context, else of KEYGATE_CONTEXT, else the current
// one. If there is none, or address has another origin, it returns an empty connection.
func (a *app) currentContext(address string) (connection, error) {
	contexts, err := a.readContexts()
	if err != nil {
		var unsafe *unsafeError
		if errors.As(err, &unsafe) {
			return connection{}, &noKeyError{unsafe.text}
		}
		return connection{}, err
	}
	name := a.context
	if name == "" {
		name, _ = a.Env("KEYGATE_CONTEXT")
	}
	named := name != ""
	if !named {
		name = contexts.Current
	}
	current, has := contexts.Contexts[name]
	switch {
	case !has && named:
		return connection{}, contexts.missing(name)
	case !has || address != "" && !sameOrigin(address, current.URL):
		return connection{}, nil
	}
	if address != "" {
		current.URL = address
	}
	return connection{current, "the context " + name, name}, nil
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
	key, err := keyIn(a.keyFile, content)
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", &noKeyError{a.keyFile + " is empty: it must hold an account-level key"}
	}
	return key, nil
}

// keyIn returns the key that a file has, without what editors put around it.
func keyIn(name string, content []byte) (string, error) {
	key := strings.TrimSpace(string(document.TrimMark(content)))
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) { // such as UTF-16, which PowerShell writes
		return "", &noKeyError{name + " must hold one account-level key and nothing else, in ASCII or UTF-8: it has a character that no key has"}
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
	key, err := keyIn("./"+localKey, content)
	if err != nil {
		return "", err
	}
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
