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

// Protocol is the version of the protocol. A daemon works with a helper of the same one or of a later one, so helpers are replaced
// first. Raise it when a daemon needs an operation, a program, an argument or a path that the helper of the last release refuses. A
// test shows a changed message (testdata/protocol.txt); no test compares the limits of profiles.
const Protocol = 3

// Bounds of requests and responses.
const (
	MaxRequest  = 8 << 20  // bytes of a request's line
	MaxResponse = 16 << 20 // bytes of a response's line
	MaxOps      = 1024     // operations of a request
	maxOutput   = 8 << 20  // bytes of a program's output or of a file
	maxResults  = 10 << 20 // bytes of all results of a request
	maxStamp    = 200      // bytes of a word of a stamp, which each ledger entry repeats
	maxMessage  = 2 << 10  // bytes of a message
)

// Hello is the first line an agent writes.
type Hello struct {
	Berth   int    `json:"berth_host"` // Protocol
	Version string `json:"version"`    // Build of the agent
}

// Request is a batch of operations. TimeoutMS bounds all of them: operations that
// have not started by then are skipped.
type Request struct {
	ID        uint64         `json:"id"`
	Stamp     runtimes.Stamp `json:"stamp"`
	TimeoutMS int64          `json:"timeout_ms"`
	Ops       []runtimes.Op  `json:"ops"`
}

// Response answers the Request of the same ID with the results of the operations that
// succeeded, and the Fault of the next one.
type Response struct {
	ID      uint64            `json:"id"`
	Results []runtimes.Result `json:"results,omitempty"`
	Fault   *Fault            `json:"fault,omitempty"`
}

// Fault is the error of an operation.
type Fault struct {
	Op      string          `json:"op"` // summary of the operation, without contents
	Code    runtimes.OpCode `json:"code"`
	Message string          `json:"message"`
	Exit    int             `json:"exit,omitempty"`
}

func (f *Fault) Error() string {
	return strings.TrimPrefix(f.Op+": "+f.Message, ": ")
}

func refuse(format string, args ...any) error {
	return &Fault{Code: runtimes.CodeRefused, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &Fault{Code: runtimes.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// faultOf converts any error to a Fault.
func faultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Code: runtimes.CodeIO, Message: err.Error()}
}

// withOp converts an error of an operation to a Fault that names it.
func withOp(err error, op string) *Fault {
	f := *faultOf(err)
	f.Op = op
	return &f
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

// ErrTooLong is the error of a line beyond its limit.
var ErrTooLong = errors.New("line too long")

// ReadLine reads a line of at most limit bytes, without the line break. A last line
// without a line break is truncated and an error.
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

// decodeRequest refuses unknown fields, so that an older agent does not do half of a
// newer client's request.
func decodeRequest(line []byte) (Request, error) {
	var r Request
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, invalid("the request is not valid in this protocol: %v", err)
	}
	if len(r.Ops) == 0 || len(r.Ops) > MaxOps {
		return r, invalid("want 1 to %d operations, got %d", MaxOps, len(r.Ops))
	}
	for _, word := range []string{r.Stamp.Commit, r.Stamp.CorrelationID, r.Stamp.ActionID, r.Stamp.Verb, r.Stamp.Leader, r.Stamp.Operator,
		r.Stamp.Credential.Credential} {
		if len(word) > maxStamp || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return r, invalid("a word of the stamp has more than %d characters, or other than visible ASCII", maxStamp)
		}
	}
	for i := range r.Ops {
		if err := Check(r.Ops[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Check fails unless exactly one field of op is set.
func Check(op runtimes.Op) error {
	set := 0
	for v, i := reflect.ValueOf(op), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			set++
		}
	}
	if set != 1 {
		return invalid("an operation needs exactly one field set, got %d", set)
	}
	return nil
}

// MayEffect reports whether op may change the host.
func MayEffect(op runtimes.Op) bool {
	switch {
	case op.Read != nil, op.Stat != nil, op.List != nil, op.Info != nil, op.Preflight != nil, op.Ledger != nil, op.Facts != nil:
		return false
	case op.Service != nil:
		return op.Service.Verb != "state"
	}
	return true
}

// Summary describes op in one line for the ledger and for errors, without contents.
// It quotes values that could forge a line.
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
		return strings.TrimSpace("as " + plain(op.Run.As.Name) + " run " + plain(op.Run.Program) + " " +
			plain(strings.Join(op.Run.Args, " ")))
	case op.Run != nil:
		return strings.TrimSpace("run " + plain(op.Run.Program) + " " + plain(strings.Join(op.Run.Args, " ")))
	case op.User != nil && op.User.Absent:
		return "remove account " + plain(op.User.Name)
	case op.User != nil:
		return fmt.Sprintf("make account %s, uid %d", plain(op.User.Name), op.User.UID)
	case op.UserDir != nil:
		return "make the directory of " + plain(op.UserDir.Name) + " in " + plain(op.UserDir.In)
	case op.Info != nil:
		return "info"
	case op.Facts != nil:
		return "facts"
	case op.Ledger != nil:
		return "read the ledger of " + plain(op.Ledger.CorrelationID)
	}
	return "nothing"
}

// plain returns s, truncated, and quoted if it has other than printable ASCII.
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

// bounded returns the end of a program's output for a message, without control
// characters other than line breaks.
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
