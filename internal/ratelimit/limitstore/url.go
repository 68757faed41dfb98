package limitstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Address says where the store is, and how to sign in. String never shows a password.
type Address struct {
	hosts    []string // host:port; of the sentinels, if master is set
	master   string   // name of the set that sentinels watch
	tls      bool
	files    tlsFiles
	username string
	password string
	database int
}

// tlsFiles are the PEM files for TLS, each "" or a path. They are read at each connect.
type tlsFiles struct{ roots, cert, key string }

const (
	defaultPort  = "6379"
	sentinelPort = "26379"
	maxDatabase  = 1 << 16
)

// ParseAddress parses the address of a store:
//
//	redis://[[user]:password@]host[:port][/database]     one server
//	rediss://…                                           the same over TLS
//	redis://host:port,host:port                          a cluster; each host may have the scheme
//	redis+sentinel://…@host:port,host:port/name[/database]  the server that sentinels name
//
// Over TLS, parameters may name files, as in a URL of PostgreSQL: sslrootcert has the certificates to trust in
// place of the system's, and sslcert and sslkey are the certificate and key that the client presents.
//
// The errors do not contain the text, which may hold a password.
func ParseAddress(text string) (*Address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	a := &Address{tls: scheme == "rediss" || scheme == "rediss+sentinel"}
	sentinel := strings.HasSuffix(scheme, "+sentinel")
	if base := strings.TrimSuffix(scheme, "+sentinel"); !found || base != "redis" && base != "rediss" {
		return nil, errors.New("must begin with redis://, rediss:// or redis+sentinel://")
	}
	rest, query, parameters := strings.Cut(rest, "?")
	if strings.ContainsAny(rest, "# ") || strings.Contains(query, "#") {
		return nil, errors.New("must have no fragment or spaces; write special characters of a password percent-encoded")
	}
	if parameters {
		if err := a.parseFiles(query); err != nil {
			return nil, err
		}
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		a.username, err1 = url.PathUnescape(user)
		a.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return nil, errors.New("has a user or password that is not percent-encoded correctly")
		}
		rest = rest[i+1:]
	}
	hosts, path, _ := strings.Cut(strings.ReplaceAll(rest, ","+scheme+"://", ","), "/")
	if err := a.parseHosts(hosts, sentinel); err != nil {
		return nil, err
	}
	if sentinel {
		if a.master, path, _ = strings.Cut(path, "/"); a.master == "" {
			return nil, errors.New("must name the set that the sentinels watch, as in redis+sentinel://host:26379/mymaster")
		}
	}
	if path != "" {
		n, err := strconv.ParseUint(path, 10, 32)
		if err != nil || n >= maxDatabase {
			return nil, fmt.Errorf("%q is not the number of a database", path)
		}
		a.database = int(n)
	}
	if a.isCluster() && a.database != 0 {
		return nil, errors.New("must name no database: a cluster has only one")
	}
	return a, nil
}

// parseFiles parses the parameters. The errors do not contain them: a password with a question mark would be there.
func (a *Address) parseFiles(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("has parameters that are not percent-encoded correctly; write ? in a password as %3F")
	}
	for name, value := range values {
		to := map[string]*string{"sslrootcert": &a.files.roots, "sslcert": &a.files.cert, "sslkey": &a.files.key}[name]
		if to == nil || len(value) != 1 || value[0] == "" {
			return errors.New("may have no other parameters than sslrootcert, sslcert and sslkey, each once with the path of a file; write ? in a password as %3F")
		}
		*to = value[0]
	}
	switch {
	case !a.tls:
		return errors.New("must begin with rediss:// if it has parameters: they are for TLS")
	case (a.files.cert == "") != (a.files.key == ""):
		return errors.New("must have sslcert and sslkey together")
	}
	return nil
}

// parseHosts parses host:port,host:port.
func (a *Address) parseHosts(text string, sentinel bool) error {
	port := defaultPort
	if sentinel {
		port = sentinelPort
	}
	for one := range strings.SplitSeq(text, ",") {
		if _, _, err := net.SplitHostPort(one); err != nil {
			one = net.JoinHostPort(strings.Trim(one, "[]"), port)
		}
		host, number, _ := net.SplitHostPort(one)
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 || host == "" {
			return errors.New("must have host:port after the scheme, or several of them separated by commas")
		}
		a.hosts = append(a.hosts, one)
	}
	return nil
}

func (a *Address) isCluster() bool { return a.master == "" && len(a.hosts) > 1 }

// tlsConfig returns the TLS configuration of connections from the present files, or nil without TLS.
func (a *Address) tlsConfig() (*tls.Config, error) {
	if !a.tls {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.files.roots != "" {
		text, err := os.ReadFile(a.files.roots)
		if err != nil {
			return nil, fmt.Errorf("sslrootcert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("sslrootcert: %s has no PEM certificate", a.files.roots)
		}
	}
	if a.files.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.files.cert, a.files.key)
		var file *fs.PathError
		switch {
		case errors.As(err, &file):
			return nil, fmt.Errorf("sslcert and sslkey: %w", file)
		case err != nil: // it is dropped: it may quote the private key
			return nil, fmt.Errorf("sslcert and sslkey: %s and %s are not a PEM certificate and its key", a.files.cert, a.files.key)
		}
		// It is presented to a server that names other issuers too, as libpq does.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c, nil
}

// String returns the address with *** in the place of a password, and without parameters.
func (a *Address) String() string {
	s := "redis"
	if a.tls {
		s = "rediss"
	}
	if a.master != "" {
		s += "+sentinel"
	}
	s += "://"
	if a.password != "" {
		s += a.username + ":***@"
	} else if a.username != "" {
		s += a.username + "@"
	}
	s += strings.Join(a.hosts, ",")
	if a.master != "" {
		s += "/" + a.master
	}
	if a.database != 0 {
		s += "/" + strconv.Itoa(a.database)
	}
	return s
}
