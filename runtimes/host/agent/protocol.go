package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"berth/runtimes"
)

// Protocol is the version of what is spoken; a Hello with another is refused.
const Protocol = 1

// Bounds of what is read and sent.
const (
	MaxRequest  = 8 << 20  // bytes of a request's line
	MaxResponse = 16 << 20 // bytes of a response's line
	MaxOps      = 256      // operations of a request
	maxOutput   = 4 << 20  // bytes a program may print, a file may give
	maxResults  = 8 << 20  // bytes of all results of a request
	maxStamp    = 200      // bytes of a word of a stamp, which stands in every entry of the ledger
	maxMessage  = 2 << 10  // bytes of a message
)

// Hello is the first line an agent writes.
type Hello struct {
	Berth   int    `json:"berth_host"` // Protocol
	Version string `json:"version"`
	// Leaders is true if the agent tells leaders of one epoch apart. An older
	// one refuses a stamp that names its leader.
	Leaders bool `json:"leaders,omitempty"`
}

// Request is a batch of operations. TimeoutMS bounds all of it: what has not
// begun by then is not done.
type Request struct {
	ID        uint64         `json:"id"`
	Stamp     runtimes.Stamp `json:"stamp"`
	TimeoutMS int64          `json:"timeout_ms"`
	Ops       []runtimes.Op  `json:"ops"`
}

// Response answers the Request of the same ID with the results of the
// operations that ran; Fault says why the next did not succeed.
type Response struct {
	ID      uint64            `json:"id"`
	Results []runtimes.Result `json:"results,omitempty"`
	Fault   *Fault            `json:"fault,omitempty"`
}

// Codes of a Fault. All but CodeStaleEpoch are those of runtimes.OpError.
const (
	CodeExit       = "exit"
	CodeRefused    = "refused"
	CodeTimeout    = "timeout"
	CodeNotFound   = "notfound"
	CodeIO         = "io"
	CodeInvalid    = "invalid"
	CodeForeign    = "foreign" // something that Berth did not make is in the way
	CodeStaleEpoch = "stale-epoch"
)

// Fault is an operation that failed, and why.
type Fault struct {
	Op      string `json:"op"` // what was to be done, without contents
	Code    string `json:"code"`
	Message string `json:"message"`
	Exit    int    `json:"exit,omitempty"`
}

func (f *Fault) Error() string {
	return strings.TrimPrefix(f.Op+": "+f.Message, ": ")
}

func refuse(format string, args ...any) error {
	return &Fault{Code: CodeRefused, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &Fault{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// faultOf makes a Fault of any error.
func faultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Code: CodeIO, Message: err.Error()}
}

// WriteLine writes v as one line.
func WriteLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ErrTooLong is a line longer than it may be.
var ErrTooLong = errors.New("line too long")

// ReadLine reads a line of at most limit bytes, without its end. A last line
// without end is none: it was cut off.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, ErrTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// decodeRequest refuses what it does not know, so that an older agent does not
// do half of what a newer client asks for.
func decodeRequest(line []byte) (Request, error) {
	var r Request
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, invalid("the request is not one of this protocol: %v", err)
	}
	if len(r.Ops) == 0 || len(r.Ops) > MaxOps {
		return r, invalid("a request has 1 to %d operations, this one %d", MaxOps, len(r.Ops))
	}
	for _, word := range []string{r.Stamp.Commit, r.Stamp.CorrelationID, r.Stamp.ActionID, r.Stamp.Verb, r.Stamp.Leader} {
		if len(word) > maxStamp || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return r, invalid("a stamp's words are up to %d visible ASCII characters", maxStamp)
		}
	}
	for i := range r.Ops {
		if err := Check(r.Ops[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Check says whether exactly one field of op is set.
func Check(op runtimes.Op) error {
	set := 0
	for v, i := reflect.ValueOf(op), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			set++
		}
	}
	if set != 1 {
		return invalid("an operation has one field set, this one %d", set)
	}
	return nil
}

// Summary says what op does in one line without contents: for the ledger and
// for errors. Values are quoted where they could forge a line.
func Summary(op runtimes.Op) string {
	switch {
	case op.Write != nil:
		return "write " + plain(op.Write.Path)
	case op.Read != nil:
		return "read " + plain(op.Read.Path)
	case op.Remove != nil && op.Remove.IfEmpty:
		return "remove directory " + plain(op.Remove.Path) + " if empty"
	case op.Remove != nil && op.Remove.Tree:
		return "remove tree " + plain(op.Remove.Path)
	case op.Remove != nil:
		return "remove " + plain(op.Remove.Path)
	case op.Dir != nil:
		return "make directory " + plain(op.Dir.Path)
	case op.Link != nil:
		return "link " + plain(op.Link.Path) + " to " + plain(op.Link.Target)
	case op.Preflight != nil:
		return "preflight"
	case op.Stat != nil:
		return "stat " + plain(strings.Join(op.Stat.Paths, " "))
	case op.List != nil:
		return "list " + plain(op.List.Path)
	case op.Secret != nil:
		return "make secret " + plain(op.Secret.Path)
	case op.Service != nil:
		return strings.TrimSpace(plain(op.Service.Verb) + " service " + plain(op.Service.Name) + " " + plain(op.Service.Unit))
	case op.Run != nil && op.Run.As != nil:
		return strings.TrimSpace("as " + plain(op.Run.As.Name) + " run " + plain(op.Run.Program) + " " + plain(strings.Join(op.Run.Args, " ")))
	case op.Run != nil:
		return strings.TrimSpace("run " + plain(op.Run.Program) + " " + plain(strings.Join(op.Run.Args, " ")))
	case op.User != nil && op.User.Absent:
		return "remove account " + plain(op.User.Name)
	case op.User != nil:
		return fmt.Sprintf("make account %s, uid %d", plain(op.User.Name), op.User.UID)
	case op.WaitTCP != nil:
		return "wait for " + plain(op.WaitTCP.Address)
	case op.Ledger != nil && op.Ledger.Begin:
		return "begin"
	case op.Ledger != nil && op.Ledger.End != "":
		return "end:" + plain(op.Ledger.End)
	case op.Ledger != nil:
		return "find in ledger " + plain(op.Ledger.Find)
	case op.Info != nil:
		return "info"
	}
	return "nothing"
}

// plain is s, bounded, and quoted if it holds anything but visible ASCII and spaces.
func plain(s string) string {
	const most = 200
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "…"
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return fmt.Sprintf("%q", s) + cut
		}
	}
	return s + cut
}

// bounded is the end of what a program printed, fit for a message: without
// control characters other than line ends.
func bounded(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > maxMessage {
		b = append([]byte("…"), b[len(b)-maxMessage:]...)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, string(b))
}
