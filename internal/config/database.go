package config

import (
	"errors"
	"net/url"
)

// parseDatabaseURL checks the form of a URL of a PostgreSQL database. The error does not contain the
// URL, which may have a password.
func parseDatabaseURL(to *Secret, s string) error {
	*to = Secret(s)
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Opaque != "" || u.Fragment != "" {
		return errors.New("is not the URL of a PostgreSQL database: write postgres://user:password@host:5432/database, with special characters percent-encoded")
	}
	return nil
}

// DatabaseText returns DatabaseURL without its password and parameters, for people.
func (c *Config) DatabaseText() string { return databaseText(c.DatabaseURL) }

// databaseText returns a URL without its secrets: without the password, and without the parameters,
// because some are passwords.
func databaseText(s Secret) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(string(s))
	if err != nil {
		return s.String()
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}
