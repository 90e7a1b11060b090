//! Tells the linker how an addon finds Node's symbols on each platform.

fn main() {
    napi_build::setup();
}
