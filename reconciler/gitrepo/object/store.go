package object

import (
	"bytes"
	"context"
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
	// largeObject is from where a blob is streamed instead of held; documents
	// are far below.
	LargeObject = 1 << 20
	// maxObject bounds what is read whole: a tree or a commit.
	MaxObject = 64 << 20
	// emptyPack is the length of a pack without objects.
	EmptyPack = 32
)

// errAbsent says that a store does not hold an object.
var errAbsent = errors.New("object is not there")

// Store is one object and ref store on disk. go-git's is not safe for
// concurrent use, so every call goes through a lock; each is short.
type Store struct {
	Dir string // the bare repository's directory, or the Git directory

	Recent *cache.ObjectLRU // objects that were read, or came, lately; it has a lock of its own

	mu      sync.Mutex
	storage *filesystem.Storage
}

// OpenStore opens a bare repository that Berth made; it reads nothing yet.
// Descriptors are kept: the number of packs is bounded (see tidy).
func OpenStore(dir string) *Store {
	return NewStore(dir, osfs.New(dir), filesystem.Options{KeepDescriptors: true, LargeObjectThreshold: LargeObject})
}

// NewStore is the store in a directory, which files are in.
func NewStore(dir string, files billy.Filesystem, o filesystem.Options) *Store {
	lately := cache.NewObjectLRU(objectCache)
	return &Store{Dir: dir, Recent: lately, storage: filesystem.NewStorageWithOptions(files, lately, o)}
}

// InitStore makes an empty bare repository. It holds no configuration but what
// Git needs to take it for one.
func InitStore(dir string) error {
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600)
}

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storage.Close()
}

// Read reads at most limit bytes of an object. Bytes read to the end are
// checked against the id: a bad disk must not become a bad estate.
func (s *Store) Read(h plumbing.Hash, limit int) (kind plumbing.ObjectType, data []byte, more bool, err error) {
	kind, data, more, err = s.bytes(h, limit)
	if err == nil && !more && Hash(kind, data) != h {
		return 0, nil, false, fmt.Errorf("object %s: its bytes are damaged", h)
	}
	return kind, data, more, err
}

// bytes is read without that check.
func (s *Store) bytes(h plumbing.Hash, limit int) (kind plumbing.ObjectType, data []byte, more bool, err error) {
	if o, ok := s.Recent.Get(h); ok {
		if m, ok := o.(*plumbing.MemoryObject); ok { // it needs no file, and nobody changes it
			return content(m, h, limit)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.storage.EncodedObject(plumbing.AnyObject, h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return 0, nil, false, fmt.Errorf("%s: %w", h, errAbsent)
	}
	if err != nil {
		return 0, nil, false, fmt.Errorf("object %s: %w", h, err)
	}
	return content(o, h, limit)
}

// content is at most limit bytes of an object.
func content(o plumbing.EncodedObject, h plumbing.Hash, limit int) (kind plumbing.ObjectType, data []byte, more bool, err error) {
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

// Has says whether an object is there. A pack lands whole, so a commit that is
// there has all it refers to, a shallow one's parents excepted.
func (s *Store) Has(h plumbing.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !h.IsZero() && s.storage.HasEncodedObject(h) == nil
}

// AddPack stores a pack. What is in a small one is kept at hand, as it is what is
// read next.
func (s *Store) AddPack(pack []byte) error {
	came := make(chan []*plumbing.MemoryObject, 1)
	go func() {
		var objects []*plumbing.MemoryObject
		if len(pack) < largePack {
			objects, _ = unpack(pack, int64(objectCache)) // storing it tells what is wrong
		}
		came <- objects
	}()
	err := s.write(bytes.NewReader(pack))
	objects := <-came
	if err != nil {
		return err
	}
	for _, o := range objects {
		s.Recent.Put(o)
	}
	return nil
}

// write stores a pack.
func (s *Store) write(pack io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := packfile.WritePackfileToObjectStorage(s.storage, pack)
	if errors.Is(err, packfile.ErrEmptyPackfile) {
		return nil
	}
	return err
}

// largePack is from where a pack is indexed beside the store, in bytes. Below,
// starting a program costs more than it saves.
const largePack = 4 << 20

// TakePack stores a pack of size bytes that came from elsewhere. A large one is
// indexed beside the store, which goes on being read. One that is bounded comes
// from people nobody knows: it may be small and unfold to anything, so it is
// not unfolded in this process at all. With strict, it is refused if git finds
// fault with anything in it.
func (s *Store) TakePack(ctx context.Context, pack io.Reader, size int64, bounded, strict bool) error {
	if !bounded && size < largePack {
		small, err := io.ReadAll(pack)
		if err != nil {
			return err
		}
		return s.AddPack(small)
	}
	if _, err := exec.LookPath("git"); !bounded && err != nil {
		return s.write(pack)
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

// ClearLeft removes what an interrupted fetch left in a store.
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

// Ref is where a ref stands; the zero hash where there is none.
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

// Shallow are the commits whose parents were not fetched.
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
