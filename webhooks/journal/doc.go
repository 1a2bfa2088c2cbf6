// Package journal keeps on disk what was delivered and is not done yet, so that
// whoever delivered it may be told that it will not get lost.
//
// It knows deliveries by the forge's id and by the work they asked for: an id
// whose work was never done is not a duplicate, and neither is one that comes
// with other work. It must not know what the work is.
//
// It is a cache: without it nothing is lost but time, as whoever works also looks
// by himself now and then. So lines that cannot be read are passed over, a file that
// cannot be read is put aside for somebody who can, and what cannot be written in
// time is told to who delivers, who will deliver again.
package journal
