package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/acme"
)

// CertificateFilter selects certificates for a list. Fields that are zero select every certificate.
type CertificateFilter struct {
	Hostname string // the whole hostname
	Query    string // a part of the hostname, ignoring the case of ASCII letters
}

// Since is how often something has happened since a time, and when it did first.
type Since struct {
	Count int64
	First time.Time
}

// CertificateReader finds certificates by ACME.
type CertificateReader interface {
	Certificate(ctx context.Context, accountID, certificateID string) (*acme.Certificate, error)
	// Certificates lists certificates, newest first.
	Certificates(ctx context.Context, accountID string, f CertificateFilter, p Page) ([]acme.Certificate, error)
	// CertificateByID returns a certificate of any account.
	CertificateByID(ctx context.Context, certificateID string) (*acme.Certificate, error)
	// CertificateOf returns the certificate of a gateway.
	CertificateOf(ctx context.Context, gatewayID string) (*acme.Certificate, error)
	// HasCertificates reports whether the account, or all accounts together if it is "", have at least n certificates.
	HasCertificates(ctx context.Context, accountID string, n int) (bool, error)
	// DueCertificates returns up to limit certificates of active accounts for which something is due at now, the longest due first.
	DueCertificates(ctx context.Context, now time.Time, limit int) ([]acme.Certificate, error)
	// NewCertificateNames returns how many hostnames are new since a time: of the account; and of all accounts, below a registered
	// domain. known reports whether hostname is one of the account's.
	NewCertificateNames(ctx context.Context, accountID, hostname, domain string, since time.Time) (ofAccount, ofDomain Since, known bool, err error)
	// CertificateRenewals returns how many renewals for a hostname the account has asked for since a time.
	CertificateRenewals(ctx context.Context, accountID, hostname string, since time.Time) (Since, error)
	// CertificateAccount returns the account with the CA whose directory has a URL.
	CertificateAccount(ctx context.Context, directory string) (*acme.Account, error)
}

// CertificateStore finds and changes certificates by ACME. The caller sets Version.
type CertificateStore interface {
	CertificateReader
	InsertCertificate(ctx context.Context, c *acme.Certificate) error
	// UpdateCertificate writes Key, Progress and Version.
	UpdateCertificate(ctx context.Context, c *acme.Certificate) error
	DeleteCertificate(ctx context.Context, certificateID string) error
	// NoteCertificateName notes a new hostname, or a renewal that was asked for, and forgets those of the account before since.
	NoteCertificateName(ctx context.Context, accountID, hostname, domain string, renewal bool, at, since time.Time) error
	// PutCertificateAccount stores an account with a CA in place of the one with its directory, if there is one.
	PutCertificateAccount(ctx context.Context, a *acme.Account) error
}
