package event

import "time"

// Certificate is the data of the events of certificates by ACME. NotAfter is nil before there is a certificate, and Error nil if the
// last attempt did not fail.
type Certificate struct {
	CertificateID string     `json:"certificate_id"`
	GatewayID     string     `json:"gateway_id"`
	Hostname      string     `json:"hostname"`
	NotAfter      *time.Time `json:"not_after"`
	Error         *string    `json:"error"`
}
