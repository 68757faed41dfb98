// Package message turns the bytes of messages into bytes, for both halves of an exchange: it reads
// responses (ResponseReader), decodes the framing of bodies (Decoder) and frames them for the next
// hop (Encoder, Framing, Recoder). It does no I/O, and its output does not depend on how the input
// is split. Framing determines both what the head of a request declares about its body and how the
// body is sent.
package message
