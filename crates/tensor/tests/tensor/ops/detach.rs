use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::*;
use std::sync::Arc;

pub fn cases() -> Vec<Case> {
    // Finite differences of the loss would include the path that the gradient does not take.
    vec![
        Case::new("detach", |b| {
            let n = b.size(1, 300);
            let x = b.variable([n]);
            let y = b.tape.activation(x, Function::Tanh);
            let constant = b.tape.detach(y);
            vec![b.tape.activation(constant, Function::Sigmoid), b.tape.activation(y, Function::Silu)]
        })
        .not_smooth(),
    ]
}

#[test]
fn no_gradient_flows_through_a_detached_value() {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let (x, w) = (tape.variable([3]), tape.input([3], DType::F32));
    let y = tape.activation(x, Function::Relu);
    let constant = tape.detach(y);
    let bent = tape.activation(constant, Function::Tanh);
    let loss = tape.dot(bent, w, None);
    let loss = tape.dot(y, w, Some(loss));
    tape.backward(loss, Backward::default());
    assert!(tape.gradient(constant).is_none());
    let dx = tape.gradient(x).unwrap();
    tape.keep(dx);
    let mut engine =
        Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
            .unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &[1.0, -1.0, 2.0]).unwrap();
    engine.write(&program, w, &[3.0, 4.0, 5.0]).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    assert_eq!(engine.read(&program, dx).unwrap(), [3.0, 0.0, 5.0]);
}
