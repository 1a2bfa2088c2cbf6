package object

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	objectCache = 16 * cache.MiByte
	// LargeObject is the size in bytes above which a blob is streamed. Documents
	// are far smaller.
	LargeObject = 1 << 20
	// MaxObject bounds the size in bytes of a tree or commit.
	MaxObject = 64 << 20
	// EmptyPack is the length in bytes of a pack without objects.
	EmptyPack = 32
)

// errAbsent means that the store does not hold the object.
var errAbsent = errors.New("object is not there")

// Store is one object and ref store on disk. The storage of go-git is not safe
// for concurrent use, so a lock guards every call; each call is short.
type Store struct {
	Dir string // the bare repository or the Git directory

	mu      sync.Mutex
	storage *filesystem.Storage
}

// OpenStore opens a bare repository that Berth created. It reads nothing yet. It
// keeps file descriptors open, because the number of packs is bounded (see tidy).
func OpenStore(dir string) *Store {
	return NewStore(dir, osfs.New(dir), filesystem.Options{KeepDescriptors: true, LargeObjectThreshold: LargeObject})
}

// NewStore returns the store in directory dir, whose files are accessed through
// files.
func NewStore(dir string, files billy.Filesystem, o filesystem.Options) *Store {
	return &Store{Dir: dir, storage: filesystem.NewStorageWithOptions(files, cache.NewObjectLRU(objectCache), o)}
}

// InitStore creates an empty bare repository. Its configuration holds only the
// settings that Git requires.
func InitStore(dir string) error {
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"),
		0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600)
}

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storage.Close()
}

// Read reads at most limit bytes of an object. An object that is read to its end
// is checked against its id, so that a disk error cannot change the estate.
func (s *Store) Read(h plumbing.Hash, limit int) (kind plumbing.ObjectType, data []byte, more bool, err error) {
	kind, data, more, err = s.bytes(h, limit)
	if err == nil && !more && Hash(kind, data) != h {
		return 0, nil, false, fmt.Errorf("object %s: its bytes are damaged", h)
	}
	return kind, data, more, err
}

// bytes is Read without that check.
func (s *Store) bytes(h plumbing.Hash, limit int) (kind plumbing.ObjectType, data []byte, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.storage.EncodedObject(plumbing.AnyObject, h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return 0, nil, false, fmt.Errorf("%s: %w", h, errAbsent)
	}
	if err != nil {
		return 0, nil, false, fmt.Errorf("object %s: %w", h, err)
	}
	r, err := o.Reader()
	if err != nil {
		return 0, nil, false, fmt.Errorf("object %s: %w", h, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	data, err = io.ReadAll(io.LimitReader(r, min(o.Size(), int64(limit))))
	if err != nil {
		return 0, nil, false, fmt.Errorf("object %s: %w", h, err)
	}
	return o.Type(), data, o.Size() > int64(limit), nil
}

// Has reports whether the store holds an object. A pack is stored completely or
// not at all. So a stored commit has every object that it refers to, except the
// parents of a shallow commit.
func (s *Store) Has(h plumbing.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !h.IsZero() && s.storage.HasEncodedObject(h) == nil
}

// AddPack stores a pack.
func (s *Store) AddPack(pack []byte) error {
	if len(pack) <= EmptyPack {
		return nil
	}
	return s.write(bytes.NewReader(pack), int64(len(pack)))
}

const (
	packHeader = 12 // bytes before the objects of a pack; see gitformat-pack(5)
	minPacked  = 9  // bytes of the smallest object in a pack: its type and size, and an empty zlib stream
)

// write stores a pack of size bytes. go-git reserves memory for the number of objects in the
// header, so the header must not name more than the pack can hold.
func (s *Store) write(r io.Reader, size int64) error {
	pack := bufio.NewReader(r)
	header, err := pack.Peek(packHeader)
	if err != nil {
		return fmt.Errorf("pack of %d bytes: %w", size, err)
	}
	if n := int64(binary.BigEndian.Uint32(header[8:])); n > size/minPacked {
		return fmt.Errorf("pack of %d bytes names %d objects", size, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = packfile.WritePackfileToObjectStorage(s.storage, pack)
	if errors.Is(err, packfile.ErrEmptyPackfile) {
		return nil
	}
	return err
}

// largePack is the size in bytes from which git indexes a pack outside the
// store's lock. For a smaller pack, starting a program costs more than it saves.
const largePack = 4 << 20

// TakePack stores a pack of size bytes received from a remote. A large pack is
// indexed outside the lock, so that readers can go on. A bounded pack comes from
// untrusted users: a small one may expand to any size, so this process never
// expands it. With strict, git rejects a pack with any faulty object.
func (s *Store) TakePack(ctx context.Context, pack io.Reader, size int64, bounded, strict bool) error {
	if !bounded && size < largePack {
		small, err := io.ReadAll(pack)
		if err != nil {
			return err
		}
		return s.AddPack(small)
	}
	if _, err := exec.LookPath("git"); !bounded && err != nil {
		return s.write(pack, size)
	}
	if size <= EmptyPack {
		return nil
	}
	memory := int64(0)
	if bounded {
		memory = MaxObject
	}
	if err := indexPack(ctx, s.Dir, pack, memory, strict); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storage.Reindex()
	return nil
}

// ClearLeft removes the temporary files of interrupted fetches from a store.
func ClearLeft(dir string) error {
	var errs []error
	for _, pattern := range []string{"incoming-*", "objects/pack/tmp_*"} {
		left, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is valid
		for _, f := range left {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(errs...)
}

// Ref returns the hash of a ref; the zero hash if the ref does not exist.
func (s *Store) Ref(name plumbing.ReferenceName) (plumbing.Hash, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.storage.Reference(name)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return r.Hash(), nil
}

// SetRef moves a ref; the zero hash removes it.
func (s *Store) SetRef(name plumbing.ReferenceName, h plumbing.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.IsZero() {
		return s.storage.RemoveReference(name)
	}
	return s.storage.SetReference(plumbing.NewHashReference(name, h))
}

// Shallow returns the commits whose parents were not fetched.
func (s *Store) Shallow() ([]plumbing.Hash, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storage.Shallow()
}

// SetShallow records the commits whose parents are not fetched.
func (s *Store) SetShallow(hs []plumbing.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storage.SetShallow(hs)
}

// Packs counts the pack files.
func (s *Store) Packs() int {
	found, _ := filepath.Glob(filepath.Join(s.Dir, "objects", "pack", "*.pack")) // the pattern is valid
	return len(found)
}
