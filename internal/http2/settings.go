package http2

import "encoding/binary"

// peerSettings are those settings of the peer that this side uses.
type peerSettings struct {
	known   bool // a SETTINGS frame was received
	streams uint32
	window  int32
	connect bool // extended CONNECT
	// The sizes of the encoder's dynamic table: the last one, and the smallest before it
	// (RFC 7541, 4.2).
	table, minTable uint32
}

// settings returns the settings that this side announces. All others have their defaults.
func (c *Conn) settings() []Setting {
	var s []Setting
	if c.cfg.Role == Client {
		s = append(s, Setting{SettingEnablePush, 0})
	} else {
		s = append(s, Setting{SettingMaxConcurrentStreams, uint32(c.cfg.MaxStreams)})
		if c.cfg.ExtendedConnect {
			s = append(s, Setting{SettingEnableConnectProtocol, 1})
		}
	}
	if c.cfg.StreamWindow != defaultWindow {
		s = append(s, Setting{SettingInitialWindowSize, uint32(c.cfg.StreamWindow)})
	}
	return append(s, Setting{SettingMaxHeaderListSize, uint32(c.limits.block)})
}

// setting takes one setting of a frame. Settings take effect at the end of the frame, and of
// several with the same identifier only the last, so that the work for a frame is bounded by its
// bytes.
func (c *Conn) setting(b []byte) {
	id, v := SettingID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
	r := &c.received
	switch id {
	case SettingHeaderTableSize:
		r.table, r.minTable = v, min(r.minTable, v)
	case SettingEnablePush:
		if v > 1 || v == 1 && c.cfg.Role == Client {
			c.fail(ProtocolError, "SETTINGS_ENABLE_PUSH out of range")
		}
	case SettingMaxConcurrentStreams:
		r.streams = v
	case SettingInitialWindowSize:
		if v > MaxWindow {
			c.fail(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE out of range")
			return
		}
		r.window = int32(v)
	case SettingMaxFrameSize:
		if v < MaxFrame || v > 1<<24-1 {
			c.fail(ProtocolError, "SETTINGS_MAX_FRAME_SIZE out of range")
		}
	case SettingEnableConnectProtocol:
		if v > 1 || v == 0 && c.peer.connect {
			c.fail(ProtocolError, "SETTINGS_ENABLE_CONNECT_PROTOCOL out of range")
			return
		}
		r.connect = v == 1
	}
}

// applySettings applies and acknowledges a SETTINGS frame.
func (c *Conn) applySettings(ev *Event) {
	change := int64(c.received.window) - int64(c.peer.window)
	c.encoder.SetTableSize(c.received.minTable)
	c.encoder.SetTableSize(c.received.table)
	c.peer = c.received
	c.peer.known = true
	if change != 0 {
		for i := range c.streams.slots {
			s := &c.streams.slots[i]
			if s.id == 0 {
				continue
			}
			send := int64(s.send) + change
			if send > MaxWindow {
				c.fail(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large")
				return
			}
			s.send = int32(send)
		}
	}
	n := len(c.out)
	c.out = AppendSettingsAck(c.out)
	c.reply(n)
	*ev = Event{Kind: SettingsChanged}
}
