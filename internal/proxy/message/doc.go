// Package message turns the bytes of messages into bytes, for both halves of an exchange: it reads
// responses (ResponseReader), decodes the framing of bodies (Decoder) and frames them for the next
// hop (Encoder, Framing, Recoder). It does no I/O, and its output does not depend on how the input
// is split. What the head of a request declares of its body, and what of it is sent, both come from
// Framing.
package message
