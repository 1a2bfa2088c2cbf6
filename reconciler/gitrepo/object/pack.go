package object

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // Git's object format is SHA-1
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing"
)

// newObject is an object that is not in the repository yet.
type newObject struct {
	Kind plumbing.ObjectType
	Data []byte
}

// Batch collects the new objects of one commit, each once, in order.
type Batch struct {
	List []newObject
	at   map[plumbing.Hash]int // index in List
}

// Add adds an object and returns its id.
func (s *Batch) Add(kind plumbing.ObjectType, data []byte) plumbing.Hash {
	h := Hash(kind, data)
	if _, ok := s.at[h]; !ok {
		if s.at == nil {
			s.at = map[plumbing.Hash]int{}
		}
		s.at[h] = len(s.List)
		s.List = append(s.List, newObject{kind, data})
	}
	return h
}

// Get returns the content of an object of the batch.
func (s *Batch) Get(h plumbing.Hash) ([]byte, bool) {
	i, ok := s.at[h]
	if !ok {
		return nil, false
	}
	return s.List[i].Data, true
}

// Hash returns the id of an object.
func Hash(kind plumbing.ObjectType, data []byte) plumbing.Hash {
	h := sha1.New() //nolint:gosec // see above
	h.Write(kind.Bytes())
	h.Write([]byte{' '})
	h.Write(strconv.AppendInt(nil, int64(len(data)), 10))
	h.Write([]byte{0})
	h.Write(data)
	return plumbing.Hash(h.Sum(nil))
}

// Pack returns a pack file of the objects. It uses no deltas and the fastest
// compression: the objects are few and small, and the receiver repacks.
func (s *Batch) Pack() []byte {
	var out bytes.Buffer
	out.WriteString("PACK")
	head := binary.BigEndian.AppendUint32(nil, 2)
	out.Write(binary.BigEndian.AppendUint32(head, uint32(len(s.List))))
	z, _ := zlib.NewWriterLevel(&out, zlib.BestSpeed) // the level is a valid constant
	for _, o := range s.List {
		out.Write(entryHead(o.Kind, len(o.Data)))
		z.Reset(&out)
		_, _ = z.Write(o.Data) // writing to a bytes.Buffer never fails
		_ = z.Close()
	}
	sum := sha1.Sum(out.Bytes()) //nolint:gosec // see above
	out.Write(sum[:])
	return out.Bytes()
}

// entryHead returns the header of an object of size bytes in a pack (git help
// format-pack).
func entryHead(kind plumbing.ObjectType, size int) (head []byte) {
	b := byte(kind)<<4 | byte(size&0x0f)
	for size >>= 4; size > 0; size >>= 7 {
		head = append(head, b|0x80)
		b = byte(size & 0x7f)
	}
	return append(head, b)
}

// JoinPacks returns one pack with the objects of several packs.
func JoinPacks(packs ...[]byte) []byte {
	const head, sum = 12, sha1.Size
	var count uint32
	var body []byte
	for _, p := range packs {
		if len(p) < head+sum {
			continue
		}
		count += binary.BigEndian.Uint32(p[8:head])
		body = append(body, p[head:len(p)-sum]...)
	}
	out := append([]byte("PACK"), 0, 0, 0, 2)
	out = binary.BigEndian.AppendUint32(out, count)
	out = append(out, body...)
	whole := sha1.Sum(out) //nolint:gosec // see above
	return append(out, whole[:]...)
}

// ErrTooLarge means that a pack exceeds its limit.
var ErrTooLarge = errors.New("too large")
